//! Tables, chains, rules, sets, elements and objects of nf_tables.
//!
//! Promises: the kernel's numbers under the kernel's names. Never: other names.

// nf_tables registers

/// `NFT_REG_VERDICT`.
pub const NFT_REG_VERDICT: u32 = 0;
/// `NFT_REG_1`.
pub const NFT_REG_1: u32 = 1;
/// `NFT_REG_2`.
pub const NFT_REG_2: u32 = 2;
/// `NFT_REG_3`.
pub const NFT_REG_3: u32 = 3;
/// `NFT_REG_4`.
pub const NFT_REG_4: u32 = 4;
/// `NFT_REG32_00`.
pub const NFT_REG32_00: u32 = 8;
/// `NFT_REG32_01`.
pub const NFT_REG32_01: u32 = 9;
/// `NFT_REG32_02`.
pub const NFT_REG32_02: u32 = 10;
/// `NFT_REG32_03`.
pub const NFT_REG32_03: u32 = 11;
/// `NFT_REG32_04`.
pub const NFT_REG32_04: u32 = 12;
/// `NFT_REG32_05`.
pub const NFT_REG32_05: u32 = 13;
/// `NFT_REG32_06`.
pub const NFT_REG32_06: u32 = 14;
/// `NFT_REG32_07`.
pub const NFT_REG32_07: u32 = 15;
/// `NFT_REG32_08`.
pub const NFT_REG32_08: u32 = 16;
/// `NFT_REG32_09`.
pub const NFT_REG32_09: u32 = 17;
/// `NFT_REG32_10`.
pub const NFT_REG32_10: u32 = 18;
/// `NFT_REG32_11`.
pub const NFT_REG32_11: u32 = 19;
/// `NFT_REG32_12`.
pub const NFT_REG32_12: u32 = 20;
/// `NFT_REG32_13`.
pub const NFT_REG32_13: u32 = 21;
/// `NFT_REG32_14`.
pub const NFT_REG32_14: u32 = 22;
/// `NFT_REG32_15`.
pub const NFT_REG32_15: u32 = 23;

// nf_tables internal verdicts

/// Continue evaluation of the current rule.
pub const NFT_CONTINUE: i32 = -1;
/// Terminate evaluation of the current rule.
pub const NFT_BREAK: i32 = -2;
/// Push the current chain on the jump stack and jump to a chain.
pub const NFT_JUMP: i32 = -3;
/// Jump to a chain without pushing the current chain on the jump stack.
pub const NFT_GOTO: i32 = -4;
/// Return to the topmost chain on the jump stack.
pub const NFT_RETURN: i32 = -5;

// nf_tables netlink message types

/// Create a new table (enum nft_table_attributes).
pub const NFT_MSG_NEWTABLE: u8 = 0;
/// Get a table (enum nft_table_attributes).
pub const NFT_MSG_GETTABLE: u8 = 1;
/// Delete a table (enum nft_table_attributes).
pub const NFT_MSG_DELTABLE: u8 = 2;
/// Create a new chain (enum nft_chain_attributes).
pub const NFT_MSG_NEWCHAIN: u8 = 3;
/// Get a chain (enum nft_chain_attributes).
pub const NFT_MSG_GETCHAIN: u8 = 4;
/// Delete a chain (enum nft_chain_attributes).
pub const NFT_MSG_DELCHAIN: u8 = 5;
/// Create a new rule (enum nft_rule_attributes).
pub const NFT_MSG_NEWRULE: u8 = 6;
/// Get a rule (enum nft_rule_attributes).
pub const NFT_MSG_GETRULE: u8 = 7;
/// Delete a rule (enum nft_rule_attributes).
pub const NFT_MSG_DELRULE: u8 = 8;
/// Create a new set (enum nft_set_attributes).
pub const NFT_MSG_NEWSET: u8 = 9;
/// Get a set (enum nft_set_attributes).
pub const NFT_MSG_GETSET: u8 = 10;
/// Delete a set (enum nft_set_attributes).
pub const NFT_MSG_DELSET: u8 = 11;
/// Create a new set element (enum nft_set_elem_attributes).
pub const NFT_MSG_NEWSETELEM: u8 = 12;
/// Get a set element (enum nft_set_elem_attributes).
pub const NFT_MSG_GETSETELEM: u8 = 13;
/// Delete a set element (enum nft_set_elem_attributes).
pub const NFT_MSG_DELSETELEM: u8 = 14;
/// Announce a new generation, only for events (enum nft_gen_attributes).
pub const NFT_MSG_NEWGEN: u8 = 15;
/// Get the rule-set generation (enum nft_gen_attributes).
pub const NFT_MSG_GETGEN: u8 = 16;
/// Trace event (enum nft_trace_attributes).
pub const NFT_MSG_TRACE: u8 = 17;
/// Create a stateful object (enum nft_obj_attributes).
pub const NFT_MSG_NEWOBJ: u8 = 18;
/// Get a stateful object (enum nft_obj_attributes).
pub const NFT_MSG_GETOBJ: u8 = 19;
/// Delete a stateful object (enum nft_obj_attributes).
pub const NFT_MSG_DELOBJ: u8 = 20;
/// Get and reset a stateful object (enum nft_obj_attributes).
pub const NFT_MSG_GETOBJ_RESET: u8 = 21;
/// Add new flow table (enum nft_flowtable_attributes).
pub const NFT_MSG_NEWFLOWTABLE: u8 = 22;
/// Get flow table (enum nft_flowtable_attributes).
pub const NFT_MSG_GETFLOWTABLE: u8 = 23;
/// Delete flow table (enum nft_flowtable_attributes).
pub const NFT_MSG_DELFLOWTABLE: u8 = 24;
/// `NFT_MSG_GETRULE_RESET`.
pub const NFT_MSG_GETRULE_RESET: u8 = 25;
/// `NFT_MSG_DESTROYTABLE`.
pub const NFT_MSG_DESTROYTABLE: u8 = 26;
/// `NFT_MSG_DESTROYCHAIN`.
pub const NFT_MSG_DESTROYCHAIN: u8 = 27;
/// `NFT_MSG_DESTROYRULE`.
pub const NFT_MSG_DESTROYRULE: u8 = 28;
/// `NFT_MSG_DESTROYSET`.
pub const NFT_MSG_DESTROYSET: u8 = 29;
/// `NFT_MSG_DESTROYSETELEM`.
pub const NFT_MSG_DESTROYSETELEM: u8 = 30;
/// `NFT_MSG_DESTROYOBJ`.
pub const NFT_MSG_DESTROYOBJ: u8 = 31;
/// `NFT_MSG_DESTROYFLOWTABLE`.
pub const NFT_MSG_DESTROYFLOWTABLE: u8 = 32;
/// `NFT_MSG_GETSETELEM_RESET`.
pub const NFT_MSG_GETSETELEM_RESET: u8 = 33;

// nf_tables generic list netlink attributes

/// List element.
pub const NFTA_LIST_ELEM: u16 = 1;

// nf_tables netfilter hook netlink attributes

/// Netfilter hook number.
pub const NFTA_HOOK_HOOKNUM: u16 = 1;
/// Netfilter hook priority.
pub const NFTA_HOOK_PRIORITY: u16 = 2;
/// Netdevice name.
pub const NFTA_HOOK_DEV: u16 = 3;
/// List of netdevices.
pub const NFTA_HOOK_DEVS: u16 = 4;

// nf_tables table flags

/// This table is not active.
pub const NFT_TABLE_F_DORMANT: u32 = 1;
/// `NFT_TABLE_F_OWNER`.
pub const NFT_TABLE_F_OWNER: u32 = 2;
/// `NFT_TABLE_F_PERSIST`.
pub const NFT_TABLE_F_PERSIST: u32 = 4;

// nf_tables table netlink attributes

/// Name of the table.
pub const NFTA_TABLE_NAME: u16 = 1;
/// Bitmask of enum nft_table_flags.
pub const NFTA_TABLE_FLAGS: u16 = 2;
/// Number of chains in this table.
pub const NFTA_TABLE_USE: u16 = 3;
/// `NFTA_TABLE_HANDLE`.
pub const NFTA_TABLE_HANDLE: u16 = 4;
/// `NFTA_TABLE_PAD`.
pub const NFTA_TABLE_PAD: u16 = 5;
/// User data.
pub const NFTA_TABLE_USERDATA: u16 = 6;
/// Owner of this table through netlink portID.
pub const NFTA_TABLE_OWNER: u16 = 7;

// nft_chain_flags

/// `NFT_CHAIN_BASE`.
pub const NFT_CHAIN_BASE: u32 = 1;
/// `NFT_CHAIN_HW_OFFLOAD`.
pub const NFT_CHAIN_HW_OFFLOAD: u32 = 2;
/// `NFT_CHAIN_BINDING`.
pub const NFT_CHAIN_BINDING: u32 = 4;

// nf_tables chain netlink attributes

/// Name of the table containing the chain.
pub const NFTA_CHAIN_TABLE: u16 = 1;
/// Numeric handle of the chain.
pub const NFTA_CHAIN_HANDLE: u16 = 2;
/// Name of the chain.
pub const NFTA_CHAIN_NAME: u16 = 3;
/// Hook specification for basechains.
pub const NFTA_CHAIN_HOOK: u16 = 4;
/// Numeric policy of the chain.
pub const NFTA_CHAIN_POLICY: u16 = 5;
/// Number of references to this chain.
pub const NFTA_CHAIN_USE: u16 = 6;
/// Type name of the string.
pub const NFTA_CHAIN_TYPE: u16 = 7;
/// Counter specification of the chain.
pub const NFTA_CHAIN_COUNTERS: u16 = 8;
/// `NFTA_CHAIN_PAD`.
pub const NFTA_CHAIN_PAD: u16 = 9;
/// Chain flags.
pub const NFTA_CHAIN_FLAGS: u16 = 10;
/// Uniquely identifies a chain in a transaction.
pub const NFTA_CHAIN_ID: u16 = 11;
/// User data.
pub const NFTA_CHAIN_USERDATA: u16 = 12;

// nf_tables rule netlink attributes

/// Name of the table containing the rule.
pub const NFTA_RULE_TABLE: u16 = 1;
/// Name of the chain containing the rule.
pub const NFTA_RULE_CHAIN: u16 = 2;
/// Numeric handle of the rule.
pub const NFTA_RULE_HANDLE: u16 = 3;
/// List of expressions.
pub const NFTA_RULE_EXPRESSIONS: u16 = 4;
/// Compatibility specifications of the rule.
pub const NFTA_RULE_COMPAT: u16 = 5;
/// Numeric handle of the previous rule.
pub const NFTA_RULE_POSITION: u16 = 6;
/// User data.
pub const NFTA_RULE_USERDATA: u16 = 7;
/// `NFTA_RULE_PAD`.
pub const NFTA_RULE_PAD: u16 = 8;
/// Uniquely identifies a rule in a transaction.
pub const NFTA_RULE_ID: u16 = 9;
/// Transaction unique identifier of the previous rule.
pub const NFTA_RULE_POSITION_ID: u16 = 10;
/// `NFTA_RULE_CHAIN_ID`.
pub const NFTA_RULE_CHAIN_ID: u16 = 11;

// nf_tables set flags

/// Name allocation, automatic cleanup on unlink.
pub const NFT_SET_ANONYMOUS: u32 = 1;
/// Set contents may not change while bound.
pub const NFT_SET_CONSTANT: u32 = 2;
/// Set contains intervals.
pub const NFT_SET_INTERVAL: u32 = 4;
/// Set is used as a dictionary.
pub const NFT_SET_MAP: u32 = 8;
/// Set uses timeouts.
pub const NFT_SET_TIMEOUT: u32 = 16;
/// Set can be updated from the evaluation path.
pub const NFT_SET_EVAL: u32 = 32;
/// Set contains stateful objects.
pub const NFT_SET_OBJECT: u32 = 64;
/// Set contains a concatenation.
pub const NFT_SET_CONCAT: u32 = 128;
/// Set contains expressions.
pub const NFT_SET_EXPR: u32 = 256;

// set selection policy

/// Prefer high performance over low memory use.
pub const NFT_SET_POL_PERFORMANCE: u32 = 0;
/// Prefer low memory use over high performance.
pub const NFT_SET_POL_MEMORY: u32 = 1;

// set element description

/// Number of elements in set.
pub const NFTA_SET_DESC_SIZE: u16 = 1;
/// Description of field concatenation.
pub const NFTA_SET_DESC_CONCAT: u16 = 2;

// attributes of concatenated fields

/// Length of single field, in bits.
pub const NFTA_SET_FIELD_LEN: u16 = 1;

// nf_tables set netlink attributes

/// Table name.
pub const NFTA_SET_TABLE: u16 = 1;
/// Set name.
pub const NFTA_SET_NAME: u16 = 2;
/// Bitmask of enum nft_set_flags.
pub const NFTA_SET_FLAGS: u16 = 3;
/// Key data type, informational purpose only.
pub const NFTA_SET_KEY_TYPE: u16 = 4;
/// Key data length.
pub const NFTA_SET_KEY_LEN: u16 = 5;
/// Mapping data type.
pub const NFTA_SET_DATA_TYPE: u16 = 6;
/// Mapping data length.
pub const NFTA_SET_DATA_LEN: u16 = 7;
/// Selection policy.
pub const NFTA_SET_POLICY: u16 = 8;
/// Set description.
pub const NFTA_SET_DESC: u16 = 9;
/// Uniquely identifies a set in a transaction.
pub const NFTA_SET_ID: u16 = 10;
/// Default timeout value.
pub const NFTA_SET_TIMEOUT: u16 = 11;
/// Garbage collection interval.
pub const NFTA_SET_GC_INTERVAL: u16 = 12;
/// User data.
pub const NFTA_SET_USERDATA: u16 = 13;
/// `NFTA_SET_PAD`.
pub const NFTA_SET_PAD: u16 = 14;
/// Stateful object type.
pub const NFTA_SET_OBJ_TYPE: u16 = 15;
/// Set handle.
pub const NFTA_SET_HANDLE: u16 = 16;
/// Set expression.
pub const NFTA_SET_EXPR: u16 = 17;
/// List of expressions.
pub const NFTA_SET_EXPRESSIONS: u16 = 18;
/// Number of elements in the set without a catch-all element; reported since Linux 6.16.
pub const NFTA_SET_COUNT: u16 = 20;

// nf_tables set element flags

/// Element ends the previous interval.
pub const NFT_SET_ELEM_INTERVAL_END: u32 = 1;
/// Special catch-all element.
pub const NFT_SET_ELEM_CATCHALL: u32 = 2;

// nf_tables set element netlink attributes

/// Key value.
pub const NFTA_SET_ELEM_KEY: u16 = 1;
/// Data value of mapping.
pub const NFTA_SET_ELEM_DATA: u16 = 2;
/// Bitmask of nft_set_elem_flags.
pub const NFTA_SET_ELEM_FLAGS: u16 = 3;
/// Timeout value.
pub const NFTA_SET_ELEM_TIMEOUT: u16 = 4;
/// Expiration time.
pub const NFTA_SET_ELEM_EXPIRATION: u16 = 5;
/// User data.
pub const NFTA_SET_ELEM_USERDATA: u16 = 6;
/// Expression.
pub const NFTA_SET_ELEM_EXPR: u16 = 7;
/// `NFTA_SET_ELEM_PAD`.
pub const NFTA_SET_ELEM_PAD: u16 = 8;
/// Stateful object reference.
pub const NFTA_SET_ELEM_OBJREF: u16 = 9;
/// Closing key value.
pub const NFTA_SET_ELEM_KEY_END: u16 = 10;
/// List of expressions.
pub const NFTA_SET_ELEM_EXPRESSIONS: u16 = 11;

// nf_tables set element list netlink attributes

/// Table of the set to be changed.
pub const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
/// Name of the set to be changed.
pub const NFTA_SET_ELEM_LIST_SET: u16 = 2;
/// List of set elements.
pub const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
/// Uniquely identifies a set in a transaction.
pub const NFTA_SET_ELEM_LIST_SET_ID: u16 = 4;

// nf_tables data types

/// Generic data.
pub const NFT_DATA_VALUE: u32 = 0;
/// Netfilter verdict.
pub const NFT_DATA_VERDICT: u32 = 4294967040;

// nf_tables data netlink attributes

/// Generic data.
pub const NFTA_DATA_VALUE: u16 = 1;
/// Nf_tables verdict.
pub const NFTA_DATA_VERDICT: u16 = 2;

// nf_tables verdict netlink attributes

/// Nf_tables verdict.
pub const NFTA_VERDICT_CODE: u16 = 1;
/// Jump target chain name.
pub const NFTA_VERDICT_CHAIN: u16 = 2;
/// Jump target chain ID.
pub const NFTA_VERDICT_CHAIN_ID: u16 = 3;

// nf_tables ruleset generation attributes

/// Ruleset generation ID.
pub const NFTA_GEN_ID: u16 = 1;
/// `NFTA_GEN_PROC_PID`.
pub const NFTA_GEN_PROC_PID: u16 = 2;
/// `NFTA_GEN_PROC_NAME`.
pub const NFTA_GEN_PROC_NAME: u16 = 3;

// nf_tables stateful object netlink attributes

/// Name of the table containing the expression.
pub const NFTA_OBJ_TABLE: u16 = 1;
/// Name of this expression type.
pub const NFTA_OBJ_NAME: u16 = 2;
/// Stateful object type.
pub const NFTA_OBJ_TYPE: u16 = 3;
/// Stateful object data.
pub const NFTA_OBJ_DATA: u16 = 4;
/// Number of references to this expression.
pub const NFTA_OBJ_USE: u16 = 5;
/// Object handle.
pub const NFTA_OBJ_HANDLE: u16 = 6;
/// `NFTA_OBJ_PAD`.
pub const NFTA_OBJ_PAD: u16 = 7;
/// User data.
pub const NFTA_OBJ_USERDATA: u16 = 8;

// nf_tables flow table netlink attributes

/// Name of table containing the flow table.
pub const NFTA_FLOWTABLE_TABLE: u16 = 1;
/// Name of this flow table.
pub const NFTA_FLOWTABLE_NAME: u16 = 2;

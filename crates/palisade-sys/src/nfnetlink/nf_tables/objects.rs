//! Tables, chains, rules, sets, elements and objects of nf_tables.
//!
//! Promises: the kernel's numbers under the kernel's names. Never: other names.

// nf_tables registers

/// `NFT_REG_VERDICT`.
pub const NFT_REG_VERDICT: u32 = 0;
/// `NFT_REG_1`.
pub const NFT_REG_1: u32 = 1;
/// `NFT_REG_4`.
pub const NFT_REG_4: u32 = 4;
/// `NFT_REG32_00`.
pub const NFT_REG32_00: u32 = 8;
/// `NFT_REG32_15`.
pub const NFT_REG32_15: u32 = 23;

// nf_tables internal verdicts

/// Continue evaluation of the current rule.
pub const NFT_CONTINUE: i32 = -1;
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
/// Get a stateful object (enum nft_obj_attributes).
pub const NFT_MSG_GETOBJ: u8 = 19;
/// Get flow table (enum nft_flowtable_attributes).
pub const NFT_MSG_GETFLOWTABLE: u8 = 23;

// nf_tables generic list netlink attributes

/// List element.
pub const NFTA_LIST_ELEM: u16 = 1;

// nf_tables netfilter hook netlink attributes

/// Netfilter hook number.
pub const NFTA_HOOK_HOOKNUM: u16 = 1;
/// Netfilter hook priority.
pub const NFTA_HOOK_PRIORITY: u16 = 2;

// nf_tables table netlink attributes

/// Name of the table.
pub const NFTA_TABLE_NAME: u16 = 1;
/// Bitmask of enum nft_table_flags.
pub const NFTA_TABLE_FLAGS: u16 = 2;
/// User data.
pub const NFTA_TABLE_USERDATA: u16 = 6;
/// Owner of this table through netlink portID.
pub const NFTA_TABLE_OWNER: u16 = 7;

// nf_tables chain netlink attributes

/// Name of the table containing the chain.
pub const NFTA_CHAIN_TABLE: u16 = 1;
/// Name of the chain.
pub const NFTA_CHAIN_NAME: u16 = 3;
/// Hook specification for basechains.
pub const NFTA_CHAIN_HOOK: u16 = 4;
/// Numeric policy of the chain.
pub const NFTA_CHAIN_POLICY: u16 = 5;
/// Type name of the string.
pub const NFTA_CHAIN_TYPE: u16 = 7;
/// User data.
pub const NFTA_CHAIN_USERDATA: u16 = 12;

// nf_tables rule netlink attributes

/// Name of the table containing the rule.
pub const NFTA_RULE_TABLE: u16 = 1;
/// Name of the chain containing the rule.
pub const NFTA_RULE_CHAIN: u16 = 2;
/// List of expressions.
pub const NFTA_RULE_EXPRESSIONS: u16 = 4;
/// Compatibility specifications of the rule.
pub const NFTA_RULE_COMPAT: u16 = 5;
/// User data.
pub const NFTA_RULE_USERDATA: u16 = 7;

// nf_tables set flags

/// Set contains intervals.
pub const NFT_SET_INTERVAL: u32 = 4;
/// Set is used as a dictionary.
pub const NFT_SET_MAP: u32 = 8;
/// Set contains a concatenation.
pub const NFT_SET_CONCAT: u32 = 128;
/// Set contains expressions.
pub const NFT_SET_EXPR: u32 = 256;

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
/// Set description.
pub const NFTA_SET_DESC: u16 = 9;
/// Uniquely identifies a set in a transaction.
pub const NFTA_SET_ID: u16 = 10;
/// Default timeout value.
pub const NFTA_SET_TIMEOUT: u16 = 11;
/// User data.
pub const NFTA_SET_USERDATA: u16 = 13;
/// Stateful object type.
pub const NFTA_SET_OBJ_TYPE: u16 = 15;
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
/// User data.
pub const NFTA_SET_ELEM_USERDATA: u16 = 6;
/// Expression.
pub const NFTA_SET_ELEM_EXPR: u16 = 7;
/// Closing key value.
pub const NFTA_SET_ELEM_KEY_END: u16 = 10;

// nf_tables set element list netlink attributes

/// Table of the set to be changed.
pub const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
/// Name of the set to be changed.
pub const NFTA_SET_ELEM_LIST_SET: u16 = 2;
/// List of set elements.
pub const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;

// nf_tables data types

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

// nf_tables ruleset generation attributes

/// Ruleset generation ID.
pub const NFTA_GEN_ID: u16 = 1;

// nf_tables stateful object netlink attributes

/// Name of this expression type.
pub const NFTA_OBJ_NAME: u16 = 2;

// nf_tables flow table netlink attributes

/// Name of this flow table.
pub const NFTA_FLOWTABLE_NAME: u16 = 2;

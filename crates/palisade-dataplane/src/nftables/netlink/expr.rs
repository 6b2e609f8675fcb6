//! Encodes and decodes rule expressions.
//!
//! Promises: what is written is read back equal, apart from counter values. Never: guesses; an expression
//! with attributes that are not supported here is decoded as unknown.

use palisade_model::Family;
use palisade_nft::{
    Bytes, CmpOp, CounterValue, CtKey, Expr, LookupMode, MetaKey, NftVerdict, PayloadBase, Reg,
    RejectAnswer,
};
use palisade_sys::netlink::{Attr, AttrWriter, Attrs, WireError};
use palisade_sys::nfnetlink::nf_tables::*;

const NF_DROP: i32 = 0;
const NF_ACCEPT: i32 = 1;
const IP_CT_DIR_ORIGINAL: u8 = 0;

/// Encodes one expression; the caller refuses unknown ones.
pub(super) fn write(w: &mut AttrWriter<'_>, expr: &Expr) {
    let name = match expr {
        Expr::Meta { .. } | Expr::MetaSet { .. } => "meta",
        Expr::Payload { .. } => "payload",
        Expr::CtLoad { .. } | Expr::CtSet { .. } => "ct",
        Expr::Bitwise { .. } => "bitwise",
        Expr::Cmp { .. } => "cmp",
        Expr::Lookup { .. } => "lookup",
        Expr::Immediate { .. } | Expr::Verdict(_) => "immediate",
        Expr::Counter(_) => "counter",
        Expr::Limit { .. } => "limit",
        Expr::Log { .. } => "log",
        Expr::Masquerade => "masq",
        Expr::Notrack => "notrack",
        Expr::Tproxy { .. } => "tproxy",
        Expr::Reject(_) => "reject",
        Expr::Unknown(name) => name,
    };
    w.text(NFTA_EXPR_NAME, name)
        .nest(NFTA_EXPR_DATA, |w| write_data(w, expr));
}

fn write_data(w: &mut AttrWriter<'_>, expr: &Expr) {
    match expr {
        Expr::Meta { key, dreg } => {
            w.be32(NFTA_META_DREG, dreg.number())
                .be32(NFTA_META_KEY, key.number());
        }
        Expr::MetaSet { key, sreg } => {
            w.be32(NFTA_META_SREG, sreg.number())
                .be32(NFTA_META_KEY, key.number());
        }
        Expr::Payload {
            base,
            offset,
            len,
            dreg,
        } => {
            w.be32(NFTA_PAYLOAD_DREG, dreg.number())
                .be32(NFTA_PAYLOAD_BASE, base.number())
                .be32(NFTA_PAYLOAD_OFFSET, *offset)
                .be32(NFTA_PAYLOAD_LEN, *len);
        }
        Expr::CtLoad { key, dreg } => {
            w.be32(NFTA_CT_DREG, dreg.number())
                .be32(NFTA_CT_KEY, key.number());
            if key.is_of_tuple() {
                w.u8(NFTA_CT_DIRECTION, IP_CT_DIR_ORIGINAL);
            }
        }
        Expr::CtSet { key, sreg } => {
            w.be32(NFTA_CT_SREG, sreg.number())
                .be32(NFTA_CT_KEY, key.number());
            if *key == CtKey::Zone {
                w.u8(NFTA_CT_DIRECTION, IP_CT_DIR_ORIGINAL);
            }
        }
        Expr::Bitwise { .. } => write_bitwise(w, expr),
        Expr::Cmp { sreg, op, value } => {
            w.be32(NFTA_CMP_SREG, sreg.number())
                .be32(NFTA_CMP_OP, op.number())
                .nest(NFTA_CMP_DATA, |w| write_value(w, value));
        }
        Expr::Lookup { set, sreg, mode } => {
            w.text(NFTA_LOOKUP_SET, set)
                .be32(NFTA_LOOKUP_SREG, sreg.number());
            write_lookup_mode(w, *mode);
        }
        Expr::Immediate { dreg, value } => {
            w.be32(NFTA_IMMEDIATE_DREG, dreg.number())
                .nest(NFTA_IMMEDIATE_DATA, |w| write_value(w, value));
        }
        Expr::Verdict(verdict) => {
            w.be32(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT)
                .nest(NFTA_IMMEDIATE_DATA, |w| write_verdict(w, verdict));
        }
        Expr::Counter(count) => write_count(w, *count),
        Expr::Limit { rate, burst } => {
            w.be64(NFTA_LIMIT_RATE, u64::from(*rate))
                .be64(NFTA_LIMIT_UNIT, 1)
                .be32(NFTA_LIMIT_BURST, *burst)
                .be32(NFTA_LIMIT_TYPE, NFT_LIMIT_PKTS);
        }
        Expr::Log { group, prefix } => {
            w.be16(NFTA_LOG_GROUP, *group).text(NFTA_LOG_PREFIX, prefix);
        }
        Expr::Reject(answer) => write_answer(w, *answer),
        Expr::Tproxy {
            family,
            address,
            port,
        } => {
            w.be32(NFTA_TPROXY_FAMILY, protocol_family(*family))
                .be32(NFTA_TPROXY_REG_ADDR, address.number())
                .be32(NFTA_TPROXY_REG_PORT, port.number());
        }
        Expr::Masquerade | Expr::Notrack | Expr::Unknown(_) => {}
    }
}

/// Encodes a bitwise operation.
fn write_bitwise(w: &mut AttrWriter<'_>, expr: &Expr) {
    if let Expr::Bitwise {
        sreg,
        dreg,
        mask,
        xor,
    } = expr
    {
        w.be32(NFTA_BITWISE_SREG, sreg.number())
            .be32(NFTA_BITWISE_DREG, dreg.number())
            .be32(NFTA_BITWISE_LEN, mask.len() as u32)
            .nest(NFTA_BITWISE_MASK, |w| write_value(w, mask))
            .nest(NFTA_BITWISE_XOR, |w| write_value(w, xor));
    }
}

/// `NFPROTO_IPV4` or `NFPROTO_IPV6`.
fn protocol_family(family: Family) -> u32 {
    match family {
        Family::V4 => 2,
        Family::V6 => 10,
    }
}

/// Encodes what a lookup gives: whether the key is a member, or the value of a map.
fn write_lookup_mode(w: &mut AttrWriter<'_>, mode: LookupMode) {
    match mode {
        LookupMode::Member => {}
        LookupMode::NotMember => {
            w.be32(NFTA_LOOKUP_FLAGS, NFT_LOOKUP_F_INV);
        }
        LookupMode::Register(dreg) => {
            w.be32(NFTA_LOOKUP_DREG, dreg.number());
        }
        LookupMode::Verdict => {
            w.be32(NFTA_LOOKUP_DREG, NFT_REG_VERDICT);
        }
    }
}

/// Encodes the answer to a packet that is refused.
fn write_answer(w: &mut AttrWriter<'_>, answer: RejectAnswer) {
    match answer {
        RejectAnswer::TcpReset => {
            w.be32(NFTA_REJECT_TYPE, NFT_REJECT_TCP_RST);
        }
        RejectAnswer::AdminProhibited => {
            w.be32(NFTA_REJECT_TYPE, NFT_REJECT_ICMPX_UNREACH)
                .u8(NFTA_REJECT_ICMP_CODE, NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
        }
    }
}

/// Encodes a plain value, inside the attribute that holds it.
pub(super) fn write_value(w: &mut AttrWriter<'_>, value: &[u8]) {
    w.bytes(NFTA_DATA_VALUE, value);
}

/// Encodes a verdict, inside the attribute that holds it.
pub(super) fn write_verdict(w: &mut AttrWriter<'_>, verdict: &NftVerdict) {
    let code = match verdict {
        NftVerdict::Accept => NF_ACCEPT,
        NftVerdict::Drop => NF_DROP,
        NftVerdict::Return => NFT_RETURN,
        NftVerdict::Continue => NFT_CONTINUE,
        NftVerdict::Jump(_) => NFT_JUMP,
        NftVerdict::Goto(_) => NFT_GOTO,
    };
    w.nest(NFTA_DATA_VERDICT, |w| {
        w.be32(NFTA_VERDICT_CODE, code.cast_unsigned());
        if let Some(chain) = verdict.chain() {
            w.text(NFTA_VERDICT_CHAIN, chain);
        }
    });
}

/// Encodes the value of a counter.
pub(super) fn write_count(w: &mut AttrWriter<'_>, count: CounterValue) {
    w.be64(NFTA_COUNTER_BYTES, count.bytes)
        .be64(NFTA_COUNTER_PACKETS, count.packets);
}

/// Decodes one expression.
pub(super) fn read(expr: &Attrs<'_>) -> Result<Expr, WireError> {
    let name = expr.require(NFTA_EXPR_NAME, "expression")?.text()?;
    let data = match expr.find(NFTA_EXPR_DATA)? {
        Some(data) => data.nested(),
        None => Attrs::new(&[]),
    };
    let expression = match name {
        "meta" => read_meta(&data)?,
        "payload" => read_payload(&data)?,
        "ct" => read_ct(&data)?,
        "bitwise" => read_bitwise(&data)?,
        "cmp" => read_cmp(&data)?,
        "lookup" => read_lookup(&data)?,
        "immediate" => read_immediate(&data)?,
        "counter" => Some(Expr::Counter(read_count(&data)?)),
        "limit" => read_limit(&data)?,
        "log" => read_log(&data)?,
        // With ports or flags it is not the expression that we write.
        "masq" if data.clone().next().is_none() => Some(Expr::Masquerade),
        "reject" => read_reject(&data)?,
        "tproxy" => read_tproxy(&data)?,
        "notrack" if data.clone().next().is_none() => Some(Expr::Notrack),
        _ => None,
    };
    Ok(expression.unwrap_or_else(|| Expr::Unknown(name.into())))
}

fn number(data: &Attrs<'_>, attr: u16) -> Result<Option<u32>, WireError> {
    data.find(attr)?.map(|attr| attr.be32()).transpose()
}

/// The kernel reports every fourth 32-bit register under the number of the 128-bit one.
fn register(data: &Attrs<'_>, attr: u16) -> Result<Option<Reg>, WireError> {
    Ok(match number(data, attr)? {
        Some(old @ NFT_REG_1..=NFT_REG_4) => Some(Reg((old as u8 - 1) * 4)),
        Some(new @ NFT_REG32_00..=NFT_REG32_15) => Some(Reg(new as u8 - NFT_REG32_00 as u8)),
        _ => None,
    })
}

fn value(data: &Attrs<'_>, attr: u16) -> Result<Option<Bytes>, WireError> {
    let Some(attr) = data.find(attr)? else {
        return Ok(None);
    };
    read_value(&attr)
}

/// The plain value in an attribute; `None` if it holds a verdict.
pub(super) fn read_value(attr: &Attr<'_>) -> Result<Option<Bytes>, WireError> {
    let value = attr.nested().find(NFTA_DATA_VALUE)?;
    Ok(value.map(|value| value.payload.into()))
}

/// The verdict in an attribute; `None` if it holds something else or an unknown verdict.
pub(super) fn read_verdict(attr: &Attr<'_>) -> Result<Option<NftVerdict>, WireError> {
    let Some(verdict) = attr.nested().find(NFTA_DATA_VERDICT)? else {
        return Ok(None);
    };
    let verdict = verdict.nested();
    let code = verdict.require(NFTA_VERDICT_CODE, "verdict")?.be32()?;
    let chain = || -> Result<_, WireError> {
        let chain = verdict.require(NFTA_VERDICT_CHAIN, "verdict")?.text()?;
        Ok(chain.into())
    };
    Ok(match code.cast_signed() {
        NF_ACCEPT => Some(NftVerdict::Accept),
        NF_DROP => Some(NftVerdict::Drop),
        NFT_RETURN => Some(NftVerdict::Return),
        NFT_CONTINUE => Some(NftVerdict::Continue),
        NFT_JUMP => Some(NftVerdict::Jump(chain()?)),
        NFT_GOTO => Some(NftVerdict::Goto(chain()?)),
        _ => None,
    })
}

/// Decodes the value of a counter.
pub(super) fn read_count(data: &Attrs<'_>) -> Result<CounterValue, WireError> {
    let number =
        |attr| -> Result<u64, WireError> { data.find(attr)?.map_or(Ok(0), |attr| attr.be64()) };
    Ok(CounterValue {
        packets: number(NFTA_COUNTER_PACKETS)?,
        bytes: number(NFTA_COUNTER_BYTES)?,
    })
}

fn read_limit(data: &Attrs<'_>) -> Result<Option<Expr>, WireError> {
    let rate = data.require(NFTA_LIMIT_RATE, "limit")?.be64()?;
    let unit = data.require(NFTA_LIMIT_UNIT, "limit")?.be64()?;
    let flags = number(data, NFTA_LIMIT_FLAGS)?.unwrap_or(0);
    let kind = number(data, NFTA_LIMIT_TYPE)?.unwrap_or(NFT_LIMIT_PKTS);
    let burst = number(data, NFTA_LIMIT_BURST)?.unwrap_or(0);
    let plain = unit == 1 && flags == 0 && kind == NFT_LIMIT_PKTS;
    let rate = u32::try_from(rate).ok().filter(|_| plain);
    Ok(rate.map(|rate| Expr::Limit { rate, burst }))
}

fn read_reject(data: &Attrs<'_>) -> Result<Option<Expr>, WireError> {
    let code = data.find(NFTA_REJECT_ICMP_CODE)?;
    let code = code.map(|attr| attr.u8()).transpose()?;
    let answer = match (number(data, NFTA_REJECT_TYPE)?, code) {
        (Some(NFT_REJECT_TCP_RST), _) => RejectAnswer::TcpReset,
        (Some(NFT_REJECT_ICMPX_UNREACH), Some(NFT_REJECT_ICMPX_ADMIN_PROHIBITED)) => {
            RejectAnswer::AdminProhibited
        }
        _ => return Ok(None),
    };
    Ok(Some(Expr::Reject(answer)))
}

fn read_log(data: &Attrs<'_>) -> Result<Option<Expr>, WireError> {
    for more in [
        NFTA_LOG_SNAPLEN,
        NFTA_LOG_QTHRESHOLD,
        NFTA_LOG_LEVEL,
        NFTA_LOG_FLAGS,
    ] {
        if data.find(more)?.is_some() {
            return Ok(None);
        }
    }
    let Some(group) = data.find(NFTA_LOG_GROUP)? else {
        return Ok(None);
    };
    let prefix = match data.find(NFTA_LOG_PREFIX)? {
        Some(prefix) => prefix.text()?,
        None => "",
    };
    Ok(Some(Expr::Log {
        group: group.be16()?,
        prefix: prefix.into(),
    }))
}

fn read_meta(data: &Attrs<'_>) -> Result<Option<Expr>, WireError> {
    let key = number(data, NFTA_META_KEY)?.and_then(MetaKey::from_number);
    let load = register(data, NFTA_META_DREG)?.zip(key);
    let set = register(data, NFTA_META_SREG)?.zip(key);
    Ok(match (load, set) {
        (Some((dreg, key)), None) => Some(Expr::Meta { key, dreg }),
        (None, Some((sreg, MetaKey::Mark))) => Some(Expr::MetaSet {
            key: MetaKey::Mark,
            sreg,
        }),
        _ => None,
    })
}

fn read_tproxy(data: &Attrs<'_>) -> Result<Option<Expr>, WireError> {
    let stored = number(data, NFTA_TPROXY_FAMILY)?;
    let mut families = Family::BOTH.into_iter();
    let family = families.find(|family| Some(protocol_family(*family)) == stored);
    let address = register(data, NFTA_TPROXY_REG_ADDR)?;
    let port = register(data, NFTA_TPROXY_REG_PORT)?;
    Ok((|| {
        Some(Expr::Tproxy {
            family: family?,
            address: address?,
            port: port?,
        })
    })())
}

fn read_payload(data: &Attrs<'_>) -> Result<Option<Expr>, WireError> {
    let base = number(data, NFTA_PAYLOAD_BASE)?.and_then(PayloadBase::from_number);
    let (offset, len) = (
        number(data, NFTA_PAYLOAD_OFFSET)?,
        number(data, NFTA_PAYLOAD_LEN)?,
    );
    // Without a destination register it writes to the packet.
    let dreg = register(data, NFTA_PAYLOAD_DREG)?;
    Ok((|| {
        Some(Expr::Payload {
            base: base?,
            offset: offset?,
            len: len?,
            dreg: dreg?,
        })
    })())
}

fn read_ct(data: &Attrs<'_>) -> Result<Option<Expr>, WireError> {
    let key = number(data, NFTA_CT_KEY)?.and_then(CtKey::from_number);
    let load = register(data, NFTA_CT_DREG)?.zip(key);
    let set = register(data, NFTA_CT_SREG)?.zip(key);
    let direction = data.find(NFTA_CT_DIRECTION)?;
    let direction = direction.map(|direction| direction.u8()).transpose()?;
    let has_direction = |key: &CtKey| key.is_of_tuple() || *key == CtKey::Zone && set.is_some();
    let wanted = key.filter(has_direction).map(|_| IP_CT_DIR_ORIGINAL);
    let is_expected = direction == wanted;
    if !is_expected {
        return Ok(None);
    }
    Ok(match (load, set) {
        (Some((dreg, key)), None) => Some(Expr::CtLoad { key, dreg }),
        (None, Some((sreg, key))) => Some(Expr::CtSet { key, sreg }),
        _ => None,
    })
}

fn read_bitwise(data: &Attrs<'_>) -> Result<Option<Expr>, WireError> {
    if number(data, NFTA_BITWISE_OP)?.unwrap_or(NFT_BITWISE_MASK_XOR) != NFT_BITWISE_MASK_XOR {
        return Ok(None);
    }
    let (sreg, dreg) = (
        register(data, NFTA_BITWISE_SREG)?,
        register(data, NFTA_BITWISE_DREG)?,
    );
    let (mask, xor) = (
        value(data, NFTA_BITWISE_MASK)?,
        value(data, NFTA_BITWISE_XOR)?,
    );
    Ok((|| {
        Some(Expr::Bitwise {
            sreg: sreg?,
            dreg: dreg?,
            mask: mask?,
            xor: xor?,
        })
    })())
}

fn read_cmp(data: &Attrs<'_>) -> Result<Option<Expr>, WireError> {
    let op = number(data, NFTA_CMP_OP)?.and_then(CmpOp::from_number);
    let sreg = register(data, NFTA_CMP_SREG)?;
    let value = value(data, NFTA_CMP_DATA)?;
    Ok((|| {
        Some(Expr::Cmp {
            sreg: sreg?,
            op: op?,
            value: value?,
        })
    })())
}

fn read_lookup(data: &Attrs<'_>) -> Result<Option<Expr>, WireError> {
    let set = data.require(NFTA_LOOKUP_SET, "lookup")?.text()?;
    let Some(sreg) = register(data, NFTA_LOOKUP_SREG)? else {
        return Ok(None);
    };
    let flags = number(data, NFTA_LOOKUP_FLAGS)?.unwrap_or(0);
    let dreg = register(data, NFTA_LOOKUP_DREG)?;
    let to = match (number(data, NFTA_LOOKUP_DREG)?, dreg, flags) {
        (None, _, 0) => LookupMode::Member,
        (None, _, NFT_LOOKUP_F_INV) => LookupMode::NotMember,
        (Some(NFT_REG_VERDICT), _, 0) => LookupMode::Verdict,
        (Some(_), Some(dreg), 0) => LookupMode::Register(dreg),
        _ => return Ok(None),
    };
    Ok(Some(Expr::Lookup {
        set: set.into(),
        sreg,
        mode: to,
    }))
}

fn read_immediate(data: &Attrs<'_>) -> Result<Option<Expr>, WireError> {
    let content = data.require(NFTA_IMMEDIATE_DATA, "immediate")?;
    if number(data, NFTA_IMMEDIATE_DREG)? == Some(NFT_REG_VERDICT) {
        return Ok(read_verdict(&content)?.map(Expr::Verdict));
    }
    let dreg = register(data, NFTA_IMMEDIATE_DREG)?;
    let value = read_value(&content)?;
    Ok(dreg
        .zip(value)
        .map(|(dreg, value)| Expr::Immediate { dreg, value }))
}

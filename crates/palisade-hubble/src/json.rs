//! Hubble's messages as JSON: what is exported, and the filters of who configures that.
//!
//! Promises: the names are those of the definitions, as Cilium's exporter writes them; a field of a filter that is not
//! known is refused.
//!
//! Never: has names of fields by hand.

use crate::proto;
use crate::proto::flow::FlowFilter;
use crate::proto::observer::ExportEvent;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde::ser::Error as _;
use serde_json::ser::{CompactFormatter, Formatter};
use std::io;
use std::sync::LazyLock;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    // With the messages that an extension may hold.
    let mut pool = DescriptorPool::global();
    // They are made together with this program; without them nothing is found, which is an error for each caller.
    let _ = pool.decode_file_descriptor_set(proto::DESCRIPTORS);
    pool
});

/// Numbers of `google.protobuf.Struct` that are whole have no fraction, as in other implementations.
struct ProtoFormatter;

impl Formatter for ProtoFormatter {
    fn write_f64<W: io::Write + ?Sized>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        /// Beyond this not every whole number is one of this type.
        const MOST: f64 = 9_007_199_254_740_992.0;
        if value.fract() == 0.0 && value.abs() < MOST {
            write!(writer, "{value:.0}")
        } else {
            CompactFormatter.write_f64(writer, value)
        }
    }
}

fn descriptor(name: &str) -> Option<MessageDescriptor> {
    POOL.get_message_by_name(name)
}

/// A line of an export, without its end.
///
/// # Errors
/// A message that JSON has no form for.
pub(crate) fn export_json(event: &ExportEvent) -> Result<String, serde_json::Error> {
    let descriptor = descriptor("observer.ExportEvent")
        .ok_or_else(|| serde_json::Error::custom("the definition of exports is missing"))?;
    let message = DynamicMessage::decode(descriptor, event.encode_to_vec().as_slice())
        .map_err(serde_json::Error::custom)?;
    let mut line = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut line, ProtoFormatter);
    let options = SerializeOptions::new().use_proto_field_name(true);
    message.serialize_with_options(&mut serializer, &options)?;
    String::from_utf8(line).map_err(serde_json::Error::custom)
}

/// A filter.
///
/// # Errors
/// A field that is not known, or a value of another type.
pub(crate) fn read_filter(value: &serde_json::Value) -> Result<FlowFilter, serde_json::Error> {
    let descriptor = descriptor("flow.FlowFilter").ok_or_else(|| {
        <serde_json::Error as serde::de::Error>::custom("the definition of filters is missing")
    })?;
    let message = DynamicMessage::deserialize(descriptor, value)?;
    message.transcode_to().map_err(serde_json::Error::custom)
}

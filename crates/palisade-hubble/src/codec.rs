//! How messages are read and written: as prost does it, but that a filter which is not known is refused.
//!
//! Promises: a request whose filters a later version of the API defines is answered by `INVALID_ARGUMENT`, and not by
//! flows that it did not ask for.
//!
//! Never: refuses an unknown field outside of filters; versions of the protocol add such fields.

use crate::descriptors::Descriptors;
use bytes::Buf;
use prost::{Message, Name};
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstCodec;

/// The codec of every method.
#[derive(Debug)]
pub(crate) struct StrictCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for StrictCodec<T, U> {
    fn default() -> Self {
        StrictCodec(PhantomData)
    }
}

impl<T, U> Codec for StrictCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Name + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = StrictDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        StrictDecoder(PhantomData)
    }
}

/// Reads messages.
#[derive(Debug)]
pub(crate) struct StrictDecoder<U>(PhantomData<U>);

impl<U: Message + Name + Default> Decoder for StrictDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        let message = U::decode(bytes.clone())
            .map_err(|error| Status::internal(format!("reading {}: {error}", U::full_name())))?;
        match Descriptors::get().unknown_filter(&U::full_name(), &bytes) {
            None => Ok(Some(message)),
            Some((name, number)) => Err(Status::invalid_argument(format!(
                "field {number} of {name} is not known here: it would be ignored"
            ))),
        }
    }
}

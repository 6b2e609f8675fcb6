//! What is known of a bucket on disk without its rows.

/// The header of a bucket on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BucketHeader {
    /// When the bucket begins, in seconds since the epoch.
    pub(crate) start: u64,
    /// When its last event happened.
    pub(crate) last: u64,
    /// What is added to the number of a text in its rows.
    pub(crate) text_base: u64,
    /// The bytes of all texts from `text_base` on, when it was written.
    pub(crate) text_bytes: u64,
    /// The number of its blocks.
    pub(crate) blocks: u64,
    /// The bytes of its blocks.
    pub(crate) block_bytes: u64,
    /// The number of its rows.
    pub(crate) rows: u64,
    /// How many events were lost.
    pub(crate) lost: u64,
    /// How many were counted in rows from which something was left out.
    pub(crate) folded: u64,
}

/// The bytes of a header.
const HEADER_BYTES: usize = 72;

impl BucketHeader {
    /// The bytes of the header.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let fields = [
            self.start,
            self.last,
            self.text_base,
            self.text_bytes,
            self.blocks,
            self.block_bytes,
            self.rows,
            self.lost,
            self.folded,
        ];
        fields
            .iter()
            .flat_map(|field| field.to_le_bytes())
            .collect()
    }

    /// The header of these bytes; `None` if they are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_BYTES] = bytes.try_into().ok()?;
        let (fields, _) = bytes.as_chunks::<8>();
        let [
            start,
            last,
            text_base,
            text_bytes,
            blocks,
            block_bytes,
            rows,
            lost,
            folded,
        ] = fields
        else {
            return None;
        };
        let number = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        Some(BucketHeader {
            start: number(start),
            last: number(last),
            text_base: number(text_base),
            text_bytes: number(text_bytes),
            blocks: number(blocks),
            block_bytes: number(block_bytes),
            rows: number(rows),
            lost: number(lost),
            folded: number(folded),
        })
    }
}

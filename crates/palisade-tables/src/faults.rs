//! The faults of the transition that tests must detect, see [`palisade_model::faults!`].

palisade_model::faults! {
    /// A fault in the order or the content of a transition's steps.
    pub enum TransitionFault {
        SplitAfterLoosen,
        TightenAfterLoosen,
        MergeBeforeLoosen,
        DeleteFirst,
        IntersectionSkipped,
        RevokeForgotten,
        StagesChangeAlone,
        StagesRemovedFirst,
    }
}

//! The macro that defines named faults: deliberate mistakes that test builds can inject, to prove that
//! the tests that must detect them do.
//!
//! A fault makes a result wrong, but never malformed. Without the feature `faults` of the crate that
//! defines them no fault can be injected, and every query is a constant `false`. This module injects
//! nothing itself.

/// Defines an enum of faults with `is_injected`, and in builds with the feature `faults` also `ALL` and
/// `inject`. One fault of each enum at a time is injected, for the whole process.
#[macro_export]
macro_rules! faults {
    ($(#[$doc:meta])* pub enum $name:ident { $($fault:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "each name says what goes wrong")]
        pub enum $name {
            $($fault,)*
        }

        #[cfg(not(feature = "faults"))]
        impl $name {
            /// Whether this fault is injected: never, in a build without the feature `faults`.
            #[inline(always)]
            pub const fn is_injected(self) -> bool {
                false
            }
        }

        #[cfg(feature = "faults")]
        const _: () = {
            use ::core::sync::atomic::{AtomicU8, Ordering};

            /// The number of the injected fault plus one; 0 if there is none.
            static INJECTED: AtomicU8 = AtomicU8::new(0);

            impl $name {
                /// Every fault.
                pub const ALL: &[$name] = &[$($name::$fault),*];

                /// Injects one fault, or none, instead of the present one.
                pub fn inject(fault: Option<$name>) {
                    INJECTED.store(fault.map_or(0, |fault| fault as u8 + 1), Ordering::SeqCst);
                }

                /// Whether this fault is injected.
                pub fn is_injected(self) -> bool {
                    INJECTED.load(Ordering::Relaxed) == self as u8 + 1
                }
            }
        };
    };
}

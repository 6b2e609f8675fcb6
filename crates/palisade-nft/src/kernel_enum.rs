//! Enumerations of the kernel's, defined once: variants, numbers, and words for printing.

/// Defines an enumeration, with its number in netlink messages and its word in printed rules.
macro_rules! kernel_enum {
    (
        $(#[$doc:meta])*
        $name:ident { $($(#[$of:meta])* $variant:ident = $number:literal $word:literal,)+ }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$of])* $variant,)+
        }

        impl $name {
            /// Its number in netlink messages.
            pub fn number(self) -> u32 {
                match self {
                    $($name::$variant => $number,)+
                }
            }

            /// The value with this number; `None` for one that is never written here.
            pub fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some($name::$variant),)+
                    _ => None,
                }
            }

            pub(crate) fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }
        }
    };
}

pub(crate) use kernel_enum;

//! Network namespaces, probers, policy generators and a second reading of manifests, for tests.
//!
//! Everything here exists to judge the rest of the workspace from outside. It promises to be right
//! before it is fast, and never to be a dependency of anything but tests.

pub mod cluster;
mod counted_driver;
pub mod differential;
pub mod dump;
pub mod effective;
mod fake_api_server;
mod fake_dataplane;
#[cfg(feature = "faults")]
pub mod faults;
mod grace;
mod guest;
pub mod interrupt;
pub mod lab;
pub mod ring;
pub mod runtimes;
pub mod spelling;
pub mod test_driver;

pub use counted_driver::{CountedDriver, CountedOutcome};
pub use fake_api_server::{ApiFault, FakeApiServer};
pub use fake_dataplane::{DataplaneCall, FakeDataplane, FakeFastPath};
pub use grace::FakeGracePeriod;
pub use guest::need_guest;
pub use ring::need_root;

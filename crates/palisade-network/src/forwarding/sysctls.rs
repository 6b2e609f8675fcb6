//! The sysctls that forwarding needs: planned, changed, saved, and restored.
//!
//! IP forwarding is enabled where it is off. While forwarding, the kernel ignores router advertisements
//! on an interface with `accept_ra` 1, and drops the default routes it had from them; so `accept_ra` is
//! first set to 2 on every such interface. The former values are written to the state directory before
//! any change.
//!
//! Never: changes an interface that ignored router advertisements, or restores a sysctl that another program
//! has changed since.

use palisade_node::host_changes::is_uplink;
use palisade_sys::link::{KernelLinks, Link, LinkError, Route};
use palisade_sys::plain_file::FileError;
use palisade_sys::sysctl::{Sysctl, SysctlError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the file in the state directory.
pub const SETTINGS_FILE: &str = "host.json";

/// The schema this build writes.
const SCHEMA: u32 = 1;

const V4_FORWARDING: &str = "net/ipv4/ip_forward";
const V6_FORWARDING: &str = "net/ipv6/conf/all/forwarding";
/// It differs after each boot, which resets all sysctls.
const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

/// Where the image's DaemonSet mounts this host's `/proc/sys/net`: the container's own cannot be written.
const MOUNTED_SYSCTL_DIR: &str = "/host/proc/sys";

/// The protocol number of routes from router advertisements.
const RTPROT_RA: u8 = 9;

/// The directory of this host's sysctls: where they are mounted in a container, or else the kernel's own.
pub fn sysctl_directory() -> &'static Path {
    let mounted = Path::new(MOUNTED_SYSCTL_DIR);
    if mounted.join("net").is_dir() {
        mounted
    } else {
        Path::new("/proc/sys")
    }
}

/// Why a sysctl could not be changed or restored.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The kernel rejected it.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// This host's interfaces cannot be listed.
    #[error("listing this host's interfaces")]
    Links(#[from] LinkError),
    /// The file of former values cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A changed sysctl.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedSetting {
    /// Its name, with `/` between the parts.
    pub key: String,
    /// Its former value.
    pub before: String,
    /// Its value after the change.
    pub after: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SettingsDocument {
    schema: u32,
    boot: String,
    settings: Vec<ChangedSetting>,
}

/// The file of changed sysctls.
#[derive(Clone, Debug)]
pub struct SettingsFile {
    path: PathBuf,
    boot_id: String,
}

impl SettingsFile {
    /// The file of a state directory.
    pub fn in_state_dir(state_dir: &Path) -> Self {
        SettingsFile::named(state_dir, SETTINGS_FILE)
    }

    /// The file of this name in a state directory.
    pub fn named(state_dir: &Path, name: &str) -> Self {
        SettingsFile {
            path: state_dir.join(name),
            // Without a boot id, saved values never expire.
            boot_id: std::fs::read_to_string(BOOT_ID_PATH).unwrap_or_default(),
        }
    }

    /// The sysctls changed since the host was booted.
    ///
    /// # Errors
    /// If the file exists but cannot be read.
    pub fn read(&self) -> Result<Vec<ChangedSetting>, SettingsError> {
        let failed = FileError::of("reading", &self.path);
        let text = match palisade_sys::plain_file::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text.map_err(&failed)?,
        };
        let document: SettingsDocument =
            serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
        if document.boot == self.boot_id {
            Ok(document.settings)
        } else {
            Ok(Vec::new())
        }
    }

    fn write(&self, settings: Vec<ChangedSetting>) -> Result<(), SettingsError> {
        let failed = FileError::of("writing", &self.path);
        let document = SettingsDocument {
            schema: SCHEMA,
            boot: self.boot_id.clone(),
            settings,
        };
        let text = serde_json::to_vec_pretty(&document).map_err(|error| failed(error.into()))?;
        palisade_sys::atomic_file::write_atomically(&self.path, &text)
            .map_err(|error| failed(io::Error::other(error)).into())
    }
}

/// The host's links and routes: all that is read of them here.
pub trait HostLinks {
    /// All links.
    ///
    /// # Errors
    /// The kernel's error.
    fn links(&mut self) -> Result<Vec<Link>, LinkError>;

    /// All routes.
    ///
    /// # Errors
    /// The kernel's error.
    fn routes(&mut self) -> Result<Vec<Route>, LinkError>;
}

impl HostLinks for KernelLinks {
    fn links(&mut self) -> Result<Vec<Link>, LinkError> {
        self.links()
    }

    fn routes(&mut self) -> Result<Vec<Route>, LinkError> {
        self.routes()
    }
}

/// The value; `None` if the kernel does not have this sysctl, or its interface is gone.
fn read_setting(sysctl: &impl Sysctl, key: &str) -> Result<Option<String>, SysctlError> {
    match sysctl.get(key) {
        Ok(value) => Ok(Some(value)),
        Err(SysctlError::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn interface_key(family: &str, interface: &str, name: &str) -> String {
    format!("net/{family}/conf/{interface}/{name}")
}

/// The changes that enable forwarding where it is off, and make the kernel accept router advertisements as before, also
/// on new interfaces, in order. Interfaces whose names begin with `prefix` belong to the agent. Reads only.
///
/// # Errors
/// If the kernel or the file of former values cannot be read.
pub fn plan_forwarding(
    sysctl: &impl Sysctl,
    links: &mut impl HostLinks,
    prefix: &str,
    file: &SettingsFile,
) -> Result<Vec<ChangedSetting>, SettingsError> {
    let remembered = file.read()?;
    let is_ours = |key: &str| remembered.iter().any(|setting| setting.key == key);
    let is_disabled = |key| -> Result<bool, SysctlError> {
        // A kernel without IPv6 does not have this sysctl, and nothing to forward.
        Ok(read_setting(sysctl, key)?.is_some_and(|value| value == "0"))
    };
    let (v4, v6) = (is_disabled(V4_FORWARDING)?, is_disabled(V6_FORWARDING)?);
    if !v4 && !v6 && !is_ours(V6_FORWARDING) {
        return Ok(Vec::new());
    }
    let others: Vec<Link> = links.links()?;
    let others = others
        .iter()
        .filter(|link| !link.is_loopback() && !link.name.starts_with(prefix));
    let others: Vec<&Link> = others.collect();
    let mut changes = Vec::new();
    let mut change = |key: String, before: &str, after: &str| {
        changes.push(ChangedSetting {
            key,
            before: before.to_owned(),
            after: after.to_owned(),
        });
    };
    if v6 {
        // Besides uplinks, only interfaces with such a route need advertisements.
        let routes = links.routes()?.into_iter();
        let learned: BTreeSet<String> = routes
            .filter(|route| route.protocol == RTPROT_RA)
            .filter_map(|route| route.link)
            .collect();
        for link in &others {
            let concerned = is_uplink(link) || learned.contains(&link.name);
            let key = interface_key("ipv6", &link.name, "accept_ra");
            let forwards = interface_key("ipv6", &link.name, "forwarding");
            if concerned
                && read_setting(sysctl, &key)?.as_deref() == Some("1")
                && read_setting(sysctl, &forwards)?.as_deref() == Some("0")
            {
                change(key, "1", "2");
            }
        }
    } else if is_ours(V6_FORWARDING) {
        for link in others.iter().filter(|link| is_uplink(link)) {
            let key = interface_key("ipv6", &link.name, "accept_ra");
            if !is_ours(&key) && read_setting(sysctl, &key)?.as_deref() == Some("1") {
                change(key, "1", "2");
            }
        }
    }
    for (is_off, key, family) in [(v4, V4_FORWARDING, "ipv4"), (v6, V6_FORWARDING, "ipv6")] {
        if !is_off {
            continue;
        }
        change(key.to_owned(), "0", "1");
        // Disabling `all` later would disable forwarding on these too.
        for link in &others {
            let key = interface_key(family, &link.name, "forwarding");
            if read_setting(sysctl, &key)?.as_deref() == Some("1") {
                change(key, "1", "1");
            }
        }
    }
    Ok(changes)
}

/// The change that gives a sysctl a value; `None` if it has it, or does not exist.
///
/// # Errors
/// If the kernel cannot be read.
pub fn plan_setting(
    sysctl: &impl Sysctl,
    key: &str,
    value: &str,
) -> Result<Option<ChangedSetting>, SettingsError> {
    let present = read_setting(sysctl, key)?.filter(|present| present != value);
    Ok(present.map(|before| ChangedSetting {
        key: key.to_owned(),
        before,
        after: value.to_owned(),
    }))
}

/// Makes these changes; their former values are saved before. Returns the sysctls that changed.
///
/// # Errors
/// If the former values cannot be saved, then nothing was changed; or if the kernel rejects a change.
pub fn apply_settings(
    sysctl: &mut impl Sysctl,
    file: &SettingsFile,
    changes: Vec<ChangedSetting>,
) -> Result<Vec<String>, SettingsError> {
    let remembered = file.read()?;
    let is_new = |new: &&ChangedSetting| !remembered.iter().any(|old| old.key == new.key);
    let mut all = remembered.clone();
    all.extend(changes.iter().filter(is_new).cloned());
    if all != remembered {
        file.write(all)?;
    }
    let mut changed = Vec::new();
    for ChangedSetting { key, after, .. } in changes {
        match sysctl.set(&key, &after) {
            Ok(true) => changed.push(key),
            Ok(false) => {}
            // The interface is gone, and its sysctl with it.
            Err(SysctlError::Missing { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(changed)
}

/// The sysctls that still have the agent's value, and so can be restored.
///
/// # Errors
/// If the file or the kernel cannot be read.
pub fn restorable_settings(
    sysctl: &impl Sysctl,
    file: &SettingsFile,
) -> Result<Vec<ChangedSetting>, SettingsError> {
    let mut found = Vec::new();
    for setting in file.read()? {
        if read_setting(sysctl, &setting.key)?.as_deref() == Some(&*setting.after) {
            found.push(setting);
        }
    }
    // Forwarding comes first, so that advertisements are accepted at every moment. Interfaces that
    // forwarded before come last, since disabling `all` disables them.
    let rank = |setting: &ChangedSetting| match &*setting.key {
        V4_FORWARDING | V6_FORWARDING => 0,
        _ if setting.before == setting.after => 2,
        _ => 1,
    };
    found.sort_by_key(rank);
    Ok(found)
}

/// Restores one sysctl.
///
/// # Errors
/// If the kernel rejects the value.
pub fn restore_setting(
    sysctl: &mut impl Sysctl,
    setting: &ChangedSetting,
) -> Result<(), SettingsError> {
    match sysctl.set(&setting.key, &setting.before) {
        Err(SysctlError::Missing { .. }) | Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_sys::link::IpNet;
    use palisade_text::error_chain;
    use std::collections::BTreeMap;

    fn ensure_forwarding(
        sysctl: &mut impl Sysctl,
        file: &SettingsFile,
    ) -> Result<Vec<String>, SettingsError> {
        let changes = plan_forwarding(sysctl, &mut VethHost, "pal", file)?;
        apply_settings(sysctl, file, changes)
    }

    /// The veth pair `up0` and `pal0`; a route was learned on `up0`.
    struct VethHost;

    impl HostLinks for VethHost {
        fn links(&mut self) -> Result<Vec<Link>, LinkError> {
            let link = |(index, name): (u32, &str)| Link {
                index,
                name: name.to_owned(),
                kind: Some("veth".to_owned()),
                mac: None,
                mtu: 1500,
                flags: 0,
                peer_index: None,
                peer_netnsid: None,
                master: None,
                qdisc: None,
            };
            Ok([(1, "up0"), (2, "pal0")].map(link).into())
        }

        fn routes(&mut self) -> Result<Vec<Route>, LinkError> {
            let mut learned = Route::device(IpNet::new("::".parse().unwrap(), 0), "up0");
            learned.protocol = RTPROT_RA;
            Ok(vec![learned])
        }
    }

    /// Sysctls in memory, and the changes in order.
    struct FakeSysctl {
        values: BTreeMap<String, String>,
        writes: Vec<(String, String)>,
    }

    impl Sysctl for FakeSysctl {
        fn get(&self, key: &str) -> Result<String, SysctlError> {
            let value = self.values.get(key).cloned();
            value.ok_or_else(|| SysctlError::Missing {
                key: key.to_owned(),
                netns: "fake".to_owned(),
            })
        }

        fn set(&mut self, key: &str, value: &str) -> Result<bool, SysctlError> {
            if self.get(key)? == value {
                return Ok(false);
            }
            let (key, value) = (key.to_owned(), value.to_owned());
            self.values.insert(key.clone(), value.clone());
            self.writes.push((key, value));
            Ok(true)
        }
    }

    /// A host with the links of [`VethHost`] and these sysctls.
    struct SettingsFixture {
        sysctl: FakeSysctl,
        dir: tempfile::TempDir,
        boot: &'static str,
    }

    const ALL: [(&str, &str); 8] = [
        (V4_FORWARDING, "0"),
        (V6_FORWARDING, "0"),
        ("net/ipv6/conf/up0/accept_ra", "1"),
        ("net/ipv6/conf/up0/forwarding", "0"),
        ("net/ipv4/conf/up0/forwarding", "0"),
        ("net/ipv6/conf/pal0/accept_ra", "1"),
        ("net/ipv6/conf/pal0/forwarding", "0"),
        ("net/ipv4/conf/pal0/forwarding", "0"),
    ];

    impl SettingsFixture {
        fn with(settings: &[(&str, &str)]) -> Self {
            let all = ALL.iter().chain(settings);
            let all = all.map(|(key, value)| (key.to_string(), value.to_string()));
            SettingsFixture {
                sysctl: FakeSysctl {
                    values: all.collect(),
                    writes: Vec::new(),
                },
                dir: tempfile::tempdir().unwrap(),
                boot: "b1",
            }
        }

        fn file(&self) -> SettingsFile {
            SettingsFile {
                path: self.dir.path().join(SETTINGS_FILE),
                boot_id: self.boot.to_owned(),
            }
        }

        fn keep(&mut self) -> Vec<String> {
            let file = self.file();
            ensure_forwarding(&mut self.sysctl, &file).unwrap()
        }

        fn restore(&mut self) {
            for setting in restorable_settings(&self.sysctl, &self.file()).unwrap() {
                restore_setting(&mut self.sysctl, &setting).unwrap();
            }
        }

        fn get(&self, key: &str) -> String {
            self.sysctl.get(key).unwrap()
        }
    }

    const RA: &str = "net/ipv6/conf/up0/accept_ra";

    #[test]
    fn advertisements_are_kept_before_forwarding_is_on_and_both_are_put_back() {
        let mut host = SettingsFixture::with(&[]);
        assert_eq!(host.keep(), [RA, V4_FORWARDING, V6_FORWARDING]);
        assert_eq!(
            host.get("net/ipv6/conf/pal0/accept_ra"),
            "1",
            "ours is not asked"
        );
        assert!(host.keep().is_empty());
        host.restore();
        let put_back: Vec<String> = host.sysctl.writes[3..]
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let forwarding = [V4_FORWARDING, V6_FORWARDING].map(|key| format!("{key}=0"));
        assert_eq!(put_back[..2], forwarding);
        assert_eq!(put_back[2..], [format!("{RA}=1")]);
    }

    #[test]
    fn what_was_on_or_was_set_by_others_stays() {
        let mut host = SettingsFixture::with(&[(V4_FORWARDING, "1"), (V6_FORWARDING, "1")]);
        assert!(host.keep().is_empty());
        assert!(host.sysctl.writes.is_empty());
        assert!(host.file().read().unwrap().is_empty());
        let mut host = SettingsFixture::with(&[]);
        host.keep();
        host.sysctl.set(RA, "0").unwrap();
        host.restore();
        assert_eq!((&*host.get(RA), &*host.get(V6_FORWARDING)), ("0", "0"));
    }

    #[test]
    fn an_interface_that_takes_none_is_left_alone() {
        for (accept, forwards) in [("0", "0"), ("2", "0"), ("1", "1")] {
            let forwarding = "net/ipv6/conf/up0/forwarding";
            let mut host = SettingsFixture::with(&[(RA, accept), (forwarding, forwards)]);
            assert_eq!(host.keep(), [V4_FORWARDING, V6_FORWARDING]);
            assert_eq!(host.get(RA), accept);
            let found = restorable_settings(&host.sysctl, &host.file()).unwrap();
            let last = found.last().unwrap();
            assert_eq!(last.key == forwarding, forwards == "1", "{last:?}");
        }
    }

    #[test]
    fn what_is_remembered_of_another_boot_does_not_count() {
        let mut host = SettingsFixture::with(&[]);
        host.keep();
        host.boot = "b2";
        assert!(
            restorable_settings(&host.sysctl, &host.file())
                .unwrap()
                .is_empty()
        );
        host.sysctl.set(V6_FORWARDING, "0").unwrap();
        host.sysctl.set(RA, "1").unwrap();
        assert_eq!(host.keep(), [RA, V6_FORWARDING]);
        host.restore();
        assert_eq!(host.get(V4_FORWARDING), "1", "this boot's was on before");
        assert_eq!(host.get(V6_FORWARDING), "0");
    }

    #[test]
    fn nothing_changes_where_it_cannot_be_remembered() {
        let mut host = SettingsFixture::with(&[]);
        let file = SettingsFile::in_state_dir(&host.dir.path().join("missing"));
        let error = ensure_forwarding(&mut host.sysctl, &file).unwrap_err();
        assert!(error_chain(&error).contains("host.json"), "{error}");
        assert!(host.sysctl.writes.is_empty());
    }
}

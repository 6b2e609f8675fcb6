//! The routing of redirected DNS packets: what the dataplane marks is delivered to this host, where the proxy listens.
//!
//! It is there from the first policy by name on that this agent sees, and goes when an agent starts that sees none.
//! Promises: packets that this host sends itself go their usual way, except answers of its own servers that the
//! dataplane has marked as the proxy's. Never: marks a packet.

use crate::forwarding::sysctls::{ChangedSetting, SettingsFile};
use crate::network_driver::{NODE_ROUTE_PROTOCOL, NetworkDriverError, RedirectRouteDriver};
use crate::node_state::NodeState;
use palisade_api::{CleanupItem, CleanupKind};
use palisade_config::StateConfig;
use palisade_model::{Object, Update};
use palisade_node::host_changes::HostChanges;
use palisade_node::subsystem::{ActionOutcome, ObjectChanges, Subsystem, SubsystemError};
use palisade_sys::link::{AddressFamily, IpNet, MAIN_TABLE, RoutingRule};
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The name of the file, in the state directory, with the sysctl that was changed.
pub const SETTINGS_FILE: &str = "dns-host.json";
/// The first of the positions of our rules: before those of other programs, which begin at 100, and after the kernel's
/// own of local addresses.
const FIRST_PRIORITY: u32 = 89;
/// The routing table by which all is local: that of the proxy's port.
const TABLE: u32 = 20_053;

/// The marks that the dataplane sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedirectMarks {
    /// The bit of packets that are delivered to the proxy.
    pub redirect: u32,
    /// The bit of answers that a server of this host sends to the proxy.
    pub host_answer: u32,
}

/// The routing of redirected packets.
pub struct DnsRedirect {
    driver: Box<dyn RedirectRouteDriver>,
    marks: RedirectMarks,
    file: SettingsFile,
    /// Whether a policy by name was seen.
    is_wanted: bool,
    /// Whether all of it was written and found.
    is_installed: bool,
    /// Whether the kernel may have something else.
    is_dirty: bool,
    /// Whether another program may have changed it.
    is_tampered: bool,
}

/// A change of the routing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectAction {
    change: RedirectChange,
    is_repair: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RedirectChange {
    AddRule(RoutingRule),
    DeleteRule(RoutingRule),
    AddRoute(IpNet),
    DeleteRoute(IpNet),
    Setting(ChangedSetting),
}

impl fmt::Display for RedirectAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.change {
            RedirectChange::AddRule(rule) => write!(f, "add rule {rule}"),
            RedirectChange::DeleteRule(rule) => write!(f, "delete rule {rule}"),
            RedirectChange::AddRoute(to) => write!(f, "add route local {to} table {TABLE}"),
            RedirectChange::DeleteRoute(to) => write!(f, "delete route local {to} table {TABLE}"),
            RedirectChange::Setting(setting) => write!(f, "set {}={}", setting.key, setting.after),
        }
    }
}

/// The rules for these marks, in order.
fn rules(marks: RedirectMarks) -> Vec<RoutingRule> {
    let own = [
        (Some("lo"), marks.host_answer, TABLE),
        (Some("lo"), marks.redirect, MAIN_TABLE),
        (None, marks.redirect, TABLE),
    ];
    let of_family = |family| {
        let positions = (FIRST_PRIORITY..).zip(own);
        positions.map(move |(priority, (interface, bit, table))| RoutingRule {
            family,
            priority,
            interface: interface.map(str::to_owned),
            mark: (bit, bit),
            table,
            protocol: NODE_ROUTE_PROTOCOL,
        })
    };
    AddressFamily::ALL.into_iter().flat_map(of_family).collect()
}

/// All addresses of each family.
fn destinations() -> [IpNet; 2] {
    let all: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    all.map(|address| IpNet::new(address, 0))
}

impl DnsRedirect {
    /// Nothing yet, for a dataplane that sets these marks.
    pub fn new(
        marks: RedirectMarks,
        state: &StateConfig,
        driver: Box<dyn RedirectRouteDriver>,
    ) -> Self {
        DnsRedirect {
            driver,
            marks,
            file: SettingsFile::named(&state.dir, SETTINGS_FILE),
            is_wanted: false,
            is_installed: false,
            is_dirty: false,
            is_tampered: false,
        }
    }

    /// What has to change; without redirected packets nothing stays.
    fn compare(&mut self, redirects: bool) -> Result<Vec<RedirectChange>, NetworkDriverError> {
        let is_wanted = self.is_wanted && redirects;
        let wanted = is_wanted.then(|| rules(self.marks));
        let wanted: BTreeSet<RoutingRule> = wanted.into_iter().flatten().collect();
        let present: BTreeSet<RoutingRule> = self.driver.rules()?.into_iter().collect();
        let present_routes = self.driver.local_routes(TABLE)?;
        let mut changes = Vec::new();
        // Routes are there before the rules that lead to them, and go after them.
        if is_wanted {
            let missing = destinations().into_iter();
            let missing = missing.filter(|to| !present_routes.contains(to));
            changes.extend(missing.map(RedirectChange::AddRoute));
            let setting = self.driver.plan_accepted_marks()?;
            changes.extend(setting.map(RedirectChange::Setting));
        }
        let surplus = present.difference(&wanted).cloned();
        changes.extend(surplus.map(RedirectChange::DeleteRule));
        let missing = wanted.difference(&present).cloned();
        changes.extend(missing.map(RedirectChange::AddRule));
        if !is_wanted {
            changes.extend(present_routes.into_iter().map(RedirectChange::DeleteRoute));
        }
        Ok(changes)
    }

    fn change(&mut self, change: &RedirectChange) -> Result<(), NetworkDriverError> {
        match change {
            RedirectChange::AddRule(rule) => self.driver.add_rule(rule),
            RedirectChange::DeleteRule(rule) => self.driver.delete_rule(rule),
            RedirectChange::AddRoute(to) => self.driver.add_local_route(*to, TABLE),
            RedirectChange::DeleteRoute(to) => self.driver.delete_local_route(*to, TABLE),
            RedirectChange::Setting(setting) => {
                self.driver.change_setting(&self.file, setting.clone())
            }
        }
    }
}

impl Subsystem<NodeState> for DnsRedirect {
    type Action = RedirectAction;

    fn name(&self) -> &'static str {
        "routing of redirected DNS"
    }

    fn observe(&mut self, changes: &ObjectChanges<'_>) {
        let is_wanted = self.is_wanted;
        self.is_wanted |= changes.updates.iter().any(|update| match update {
            Update::Upsert(Object::Policy(policy)) => policy.reads_dns(),
            _ => false,
        });
        // What a former agent left is looked for once.
        self.is_dirty |= is_wanted != self.is_wanted || changes.is_first_sync;
    }

    fn host_changed(&mut self, changes: &HostChanges) {
        let mut networks = changes.networks().iter();
        let of_routes = networks.any(|network| network.length() == 0);
        let is_concerned = changes.is_all() || changes.concern_rules() || of_routes;
        if self.is_installed && is_concerned {
            (self.is_dirty, self.is_tampered) = (true, true);
        }
    }

    fn precedes_policy(&self) -> bool {
        // A packet that is redirected and not routed here is judged as one that nobody reads.
        true
    }

    fn has_work(&self, node: &NodeState) -> bool {
        // What a former agent left goes only after the table that needs it.
        self.is_dirty && (self.is_wanted || node.enforcer.is_in_sync())
    }

    fn plan(&mut self, node: &mut NodeState) -> Result<Vec<RedirectAction>, SubsystemError> {
        if !self.has_work(node) {
            return Ok(Vec::new());
        }
        let redirects = node.enforcer.dataplane.redirects_dns();
        let changes = self.compare(redirects).map_err(SubsystemError::new)?;
        let is_repair = std::mem::take(&mut self.is_tampered);
        self.is_dirty = false;
        self.is_installed = self.is_wanted;
        let actions = changes.into_iter();
        Ok(actions
            .map(|change| RedirectAction { change, is_repair })
            .collect())
    }

    fn execute(
        &mut self,
        action: RedirectAction,
        _: &mut NodeState,
    ) -> Result<ActionOutcome, SubsystemError> {
        if let Err(error) = self.change(&action.change) {
            self.is_dirty = true;
            return Err(SubsystemError::new(error));
        }
        Ok(if action.is_repair {
            ActionOutcome::Repaired(vec![action.to_string()])
        } else {
            ActionOutcome::Done
        })
    }

    fn installed(&mut self) -> Result<Vec<CleanupItem>, SubsystemError> {
        let rules = self.driver.rules().map_err(SubsystemError::new)?;
        let routes = self
            .driver
            .local_routes(TABLE)
            .map_err(SubsystemError::new)?;
        let settings = self
            .driver
            .restorable(&self.file)
            .map_err(SubsystemError::new)?;
        let routing = rules
            .iter()
            .map(|rule| format!("rule {rule}"))
            .chain(routes.iter().map(|to| format!("local {to} table {TABLE}")));
        let routing = routing.map(|name| CleanupItem::new(CleanupKind::Route, name, None));
        let settings = settings.iter().map(|setting| {
            let about = format!("{}, was {}", setting.after, setting.before);
            CleanupItem::new(CleanupKind::Setting, &*setting.key, Some(about))
        });
        Ok(routing.chain(settings).collect())
    }

    fn remove(&mut self, item: &CleanupItem) -> Result<bool, SubsystemError> {
        for rule in self.driver.rules().map_err(SubsystemError::new)? {
            if format!("rule {rule}") == item.name {
                self.driver
                    .delete_rule(&rule)
                    .map_err(SubsystemError::new)?;
            }
        }
        for to in self
            .driver
            .local_routes(TABLE)
            .map_err(SubsystemError::new)?
        {
            if format!("local {to} table {TABLE}") == item.name {
                let deleted = self.driver.delete_local_route(to, TABLE);
                deleted.map_err(SubsystemError::new)?;
            }
        }
        for setting in self
            .driver
            .restorable(&self.file)
            .map_err(SubsystemError::new)?
        {
            if setting.key == item.name {
                self.driver.restore(&setting).map_err(SubsystemError::new)?;
            }
        }
        Ok(true)
    }
}

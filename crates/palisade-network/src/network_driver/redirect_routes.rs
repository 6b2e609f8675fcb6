//! The routing rules and routes of redirected packets, and the sysctl that accepted connections need.
//!
//! They have the protocol number of our routes, by which they are recognised after a restart. Never: changes a rule or
//! a route of another protocol.

use super::{KernelNetworkDriver, NODE_ROUTE_PROTOCOL, NetworkDriverError};
use crate::forwarding::sysctls::{self, ChangedSetting, SettingsFile};
use palisade_sys::link::{IpNet, Route, RouteKind, RoutingRule};

/// The sysctl by which an accepted connection has the mark of the packet that opened it.
const ACCEPT_MARK: &str = "net/ipv4/tcp_fwmark_accept";

/// Routing of redirected packets.
pub trait RedirectRouteDriver: Send {
    /// Our routing rules.
    ///
    /// # Errors
    /// If the kernel cannot be queried.
    fn rules(&mut self) -> Result<Vec<RoutingRule>, NetworkDriverError>;

    /// The destinations of our local routes of a table.
    ///
    /// # Errors
    /// If the kernel cannot be queried.
    fn local_routes(&mut self, table: u32) -> Result<Vec<IpNet>, NetworkDriverError>;

    /// Adds a rule.
    ///
    /// # Errors
    /// If the kernel rejects it.
    fn add_rule(&mut self, rule: &RoutingRule) -> Result<(), NetworkDriverError>;

    /// Deletes a rule; it is no error if there is none.
    ///
    /// # Errors
    /// If the kernel rejects it.
    fn delete_rule(&mut self, rule: &RoutingRule) -> Result<(), NetworkDriverError>;

    /// Adds or replaces a route by which packets to a destination are delivered to this host.
    ///
    /// # Errors
    /// If the kernel rejects it.
    fn add_local_route(&mut self, destination: IpNet, table: u32)
    -> Result<(), NetworkDriverError>;

    /// Deletes such a route; it is no error if there is none.
    ///
    /// # Errors
    /// If the kernel rejects it.
    fn delete_local_route(
        &mut self,
        destination: IpNet,
        table: u32,
    ) -> Result<(), NetworkDriverError>;

    /// The change of the sysctl of accepted connections; `None`: it is as it has to be.
    ///
    /// # Errors
    /// If the kernel cannot be read.
    fn plan_accepted_marks(&mut self) -> Result<Option<ChangedSetting>, NetworkDriverError>;

    /// Changes a sysctl; its former value is saved before.
    ///
    /// # Errors
    /// If it cannot be saved or changed.
    fn change_setting(
        &mut self,
        file: &SettingsFile,
        change: ChangedSetting,
    ) -> Result<(), NetworkDriverError>;

    /// The sysctl, if it still has the value that it was changed to.
    ///
    /// # Errors
    /// If the kernel or the file cannot be read.
    fn restorable(
        &mut self,
        file: &SettingsFile,
    ) -> Result<Vec<ChangedSetting>, NetworkDriverError>;

    /// Restores the sysctl.
    ///
    /// # Errors
    /// If the kernel rejects the former value.
    fn restore(&mut self, setting: &ChangedSetting) -> Result<(), NetworkDriverError>;
}

impl RedirectRouteDriver for KernelNetworkDriver {
    fn rules(&mut self) -> Result<Vec<RoutingRule>, NetworkDriverError> {
        let rules = self.links()?.rules()?.into_iter();
        Ok(rules
            .filter(|rule| rule.protocol == NODE_ROUTE_PROTOCOL)
            .collect())
    }

    fn local_routes(&mut self, table: u32) -> Result<Vec<IpNet>, NetworkDriverError> {
        let routes = self.links()?.routes()?.into_iter();
        let own = routes.filter(|route| {
            route.table == table
                && route.protocol == NODE_ROUTE_PROTOCOL
                && route.kind == RouteKind::Local
        });
        Ok(own.map(|route| route.destination).collect())
    }

    fn add_rule(&mut self, rule: &RoutingRule) -> Result<(), NetworkDriverError> {
        if self.is_read_only {
            return Ok(());
        }
        Ok(self.links()?.add_rule(rule)?)
    }

    fn delete_rule(&mut self, rule: &RoutingRule) -> Result<(), NetworkDriverError> {
        if self.is_read_only {
            return Ok(());
        }
        match self.links()?.delete_rule(rule) {
            Err(error) if error.is_not_found() => Ok(()),
            other => Ok(other?),
        }
    }

    fn add_local_route(
        &mut self,
        destination: IpNet,
        table: u32,
    ) -> Result<(), NetworkDriverError> {
        if self.is_read_only {
            return Ok(());
        }
        Ok(self
            .links()?
            .replace_route(&local_route(destination, table))?)
    }

    fn delete_local_route(
        &mut self,
        destination: IpNet,
        table: u32,
    ) -> Result<(), NetworkDriverError> {
        if self.is_read_only {
            return Ok(());
        }
        match self.links()?.delete_route(&local_route(destination, table)) {
            Err(error) if error.is_not_found() => Ok(()),
            other => Ok(other?),
        }
    }

    fn plan_accepted_marks(&mut self) -> Result<Option<ChangedSetting>, NetworkDriverError> {
        Ok(sysctls::plan_setting(&self.sysctl(), ACCEPT_MARK, "1")?)
    }

    fn change_setting(
        &mut self,
        file: &SettingsFile,
        change: ChangedSetting,
    ) -> Result<(), NetworkDriverError> {
        if !self.is_read_only {
            sysctls::apply_settings(&mut self.sysctl(), file, vec![change])?;
        }
        Ok(())
    }

    fn restorable(
        &mut self,
        file: &SettingsFile,
    ) -> Result<Vec<ChangedSetting>, NetworkDriverError> {
        Ok(sysctls::restorable_settings(&self.sysctl(), file)?)
    }

    fn restore(&mut self, setting: &ChangedSetting) -> Result<(), NetworkDriverError> {
        if self.is_read_only {
            return Ok(());
        }
        Ok(sysctls::restore_setting(&mut self.sysctl(), setting)?)
    }
}

/// The kernel's form of a local route.
fn local_route(destination: IpNet, table: u32) -> Route {
    Route {
        kind: RouteKind::Local,
        scope: if destination.address.is_ipv4() {
            palisade_sys::link::RouteScope::Host
        } else {
            palisade_sys::link::RouteScope::Universe
        },
        table,
        protocol: NODE_ROUTE_PROTOCOL,
        ..Route::device(destination, "lo")
    }
}

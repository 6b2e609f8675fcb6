//! The CNI operations, one function each.

use crate::agent_client::{AgentCallError, AgentClient};
use crate::deletion_queue::DeletionQueue;
use crate::error::CniError;
use crate::invocation::{CniCommand, Invocation};
use crate::netconf::{self, NetConf};
use crate::result::{CniVersion, add_result};
use palisade_api::{
    CniAddRequest, CniAddResponse, CniAttachment, CniCheckRequest, CniGcRequest, CniPrevResult,
    CniResponse, path,
};
use palisade_text::printable_json;
use serde_json::{Value, json};
use std::io;
use std::process::ExitCode;
use std::time::Duration;

/// Number of attempts with an agent that closes the connection without a response.
const MAX_ATTEMPTS: usize = 5;

/// Runs one call. Returns the text for standard output and the exit code.
///
/// `input` is the content of standard input, or the error of reading it.
pub fn run(
    invocation: Result<Invocation, CniError>,
    input: io::Result<Vec<u8>>,
) -> (String, ExitCode) {
    let mut version = CniVersion::V1_1_0.name().to_owned();
    let operate = || -> Result<Option<Value>, CniError> {
        let invocation = invocation?;
        let input = input.map_err(|source| CniError::Io {
            doing: "reading the network configuration".to_owned(),
            source,
        })?;
        if invocation.command == CniCommand::Version {
            return Ok(Some(version_result(&input)));
        }
        let network = NetConf::parse(&input)?;
        let cni_version = network.version()?;
        cni_version.name().clone_into(&mut version);
        let call = PluginCall {
            agent: AgentClient::new(&network.socket, Duration::from_secs(network.wait_seconds)),
            invocation,
            network,
            version: cni_version,
        };
        match call.invocation.command {
            CniCommand::Add => call.add().map(Some),
            CniCommand::Del => call.del().map(|()| None),
            CniCommand::Check => call.check().map(|()| None),
            CniCommand::Gc => call.gc().map(|()| None),
            CniCommand::Status | CniCommand::Version => call.status().map(|()| None),
        }
    };
    match operate() {
        Ok(Some(value)) => {
            let text = value.to_string();
            (format!("{}\n", printable_json(&text)), ExitCode::SUCCESS)
        }
        Ok(None) => (String::new(), ExitCode::SUCCESS),
        Err(error) => {
            let failure = error.to_error_result(&version);
            let text = serde_json::to_string(&failure).unwrap_or_else(|_| error.to_string());
            (format!("{}\n", printable_json(&text)), ExitCode::FAILURE)
        }
    }
}

/// VERSION succeeds even if the configuration cannot be read.
fn version_result(input: &[u8]) -> Value {
    let asked = NetConf::parse(input)
        .ok()
        .map(|network| network.cni_version);
    let version = asked.filter(|name| CniVersion::parse(name).is_some());
    json!({
        "cniVersion": version.unwrap_or_else(|| CniVersion::V1_1_0.name().to_owned()),
        "supportedVersions": CniVersion::ALL.map(CniVersion::name),
    })
}

struct PluginCall {
    invocation: Invocation,
    network: NetConf,
    version: CniVersion,
    agent: AgentClient,
}

impl PluginCall {
    fn attachment(&self) -> CniAttachment {
        CniAttachment {
            container: self.invocation.container.clone(),
            network: self.network.name.clone(),
            interface: self.invocation.interface.clone(),
        }
    }

    fn cni_error(&self, unanswered: AgentCallError) -> CniError {
        unanswered.into_cni_error(&self.network.socket)
    }

    fn netns(&self) -> &str {
        self.invocation.netns.as_deref().unwrap_or_default()
    }

    fn add(&self) -> Result<Value, CniError> {
        let pod = self.invocation.argument("K8S_POD_NAME");
        let namespace = self.invocation.argument("K8S_POD_NAMESPACE");
        let mut addresses = self.network.requested_addresses()?;
        if let Some(text) = self.invocation.argument("IP") {
            addresses = text
                .split(',')
                .map(netconf::parse_address)
                .collect::<Result<_, _>>()?;
        }
        let request = CniAddRequest {
            container: self.invocation.container.clone(),
            network: self.network.name.clone(),
            interface: self.invocation.interface.clone(),
            netns: self.netns().to_owned(),
            namespace: namespace.unwrap_or(&self.network.namespace).to_owned(),
            name: pod.unwrap_or(&self.invocation.container).to_owned(),
            uid: self.invocation.argument("K8S_POD_UID").map(str::to_owned),
            pod: pod.is_some(),
            addresses: addresses.iter().map(ToString::to_string).collect(),
            families: self.network.families.clone(),
            mtu: self.network.mtu,
            masquerade: self.network.ip_masq,
            chained: self.prev_result()?,
        };
        let added: CniAddResponse = self
            .agent
            .send("POST", path::CNI, &request)
            .map_err(|unanswered| self.cni_error(unanswered))?;
        // In a chain, the result is the previous plugin's.
        Ok(match &self.network.prev_result {
            Some(previous) => previous.clone(),
            None => add_result(
                self.version,
                &self.invocation.interface,
                self.netns(),
                &added,
            ),
        })
    }

    /// The result of the previous plugin, if there is one.
    fn prev_result(&self) -> Result<Option<CniPrevResult>, CniError> {
        let Some(previous) = &self.network.prev_result else {
            return Ok(None);
        };
        let wrong = |reason: String| CniError::Configuration {
            field: "prevResult",
            reason,
        };
        let interfaces = previous["interfaces"].as_array().ok_or_else(|| {
            wrong("contains no interfaces; chaining needs version 0.3.0 or later".to_owned())
        })?;
        // Bridges are listed before the port to which the container is connected.
        let host = interfaces
            .iter()
            .rfind(|interface| interface["sandbox"].as_str().is_none_or(str::is_empty))
            .and_then(|interface| interface["name"].as_str())
            .ok_or_else(|| wrong("contains no host-side interface".to_owned()))?;
        let ips = previous["ips"].as_array().map(Vec::as_slice);
        let addresses = ips
            .unwrap_or_default()
            .iter()
            .map(|ip| {
                let text = ip["address"].as_str().unwrap_or_default();
                Ok(netconf::parse_address(text)?.to_string())
            })
            .collect::<Result<Vec<_>, CniError>>()?;
        if addresses.is_empty() {
            return Err(wrong("contains no addresses".to_owned()));
        }
        Ok(Some(CniPrevResult {
            host_interface: host.to_owned(),
            addresses,
        }))
    }

    fn del(&self) -> Result<(), CniError> {
        let attachment = self.attachment();
        for _ in 0..MAX_ATTEMPTS {
            match self
                .agent
                .send::<CniResponse>("DELETE", path::CNI, &attachment)
            {
                // Not connected, or the agent ended before its response.
                Err(AgentCallError::NotListening(_) | AgentCallError::ConnectionClosed(_)) => {}
                other => return self.discard_response(other),
            }
            let queue = DeletionQueue::lock(&self.network.queue)?;
            // The agent listens before it takes this lock: if it listens now, it has read the queue or will
            // read it. No request is sent while the lock is held, since the agent may be waiting for the
            // lock.
            if !self.agent.is_listening() {
                return queue.push(&attachment);
            }
        }
        Err(CniError::TryAgainLater(format!(
            "the agent at {} closed the connection {MAX_ATTEMPTS} times without a response",
            self.network.socket.display()
        )))
    }

    fn discard_response(&self, done: Result<CniResponse, AgentCallError>) -> Result<(), CniError> {
        done.map(|_| ())
            .map_err(|unanswered| self.cni_error(unanswered))
    }

    fn check(&self) -> Result<(), CniError> {
        let Some(previous) = &self.network.prev_result else {
            return Err(CniError::Configuration {
                field: "prevResult",
                reason: "CHECK needs the result of ADD (prevResult)".to_owned(),
            });
        };
        let ips = previous["ips"].as_array().map(Vec::as_slice);
        let addresses = ips
            .unwrap_or_default()
            .iter()
            .filter_map(|ip| ip["address"].as_str())
            .map(|text| Ok(netconf::parse_address(text)?.to_string()))
            .collect::<Result<Vec<_>, CniError>>()?;
        let request = CniCheckRequest {
            attachment: self.attachment(),
            netns: self.netns().to_owned(),
            addresses,
        };
        self.discard_response(self.agent.send("POST", path::CNI_CHECK, &request))
    }

    fn gc(&self) -> Result<(), CniError> {
        let request = CniGcRequest {
            network: self.network.name.clone(),
            valid: self
                .network
                .valid_attachments()
                .iter()
                .map(|attachment| CniAttachment {
                    container: attachment.container.clone(),
                    network: self.network.name.clone(),
                    interface: attachment.interface.clone(),
                })
                .collect(),
        };
        self.discard_response(self.agent.send("POST", path::CNI_GC, &request))
    }

    fn status(&self) -> Result<(), CniError> {
        let not_available = |why: String| Err(CniError::NotAvailable(why));
        match self.agent.readiness() {
            Ok(probe) if probe.ok => Ok(()),
            Ok(probe) => not_available(probe.reasons.join("; ")),
            Err(unanswered) => not_available(self.cni_error(unanswered).to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Terminal colours, C1 controls, line ends and bidirectional controls.
    const HOSTILE: &str = "\u{1b}[31m\u{9b}2J\u{85}\r\n\tforged\u{202e}\u{2028}";

    fn invocation(variables: &[(&str, &str)]) -> Result<Invocation, CniError> {
        Invocation::from_variables(|name| {
            let variable = variables.iter().find(|(known, _)| *known == name);
            variable.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn no_answer_carries_what_a_terminal_acts_upon() {
        let args = format!("K8S_POD_NAME={HOSTILE};{HOSTILE}={HOSTILE}");
        let sound = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "a"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_NETNS", "/run/netns/a"),
            ("CNI_ARGS", &*args),
        ];
        let config = |key: &str, value: &str| {
            let mut config = json!({"cniVersion": "1.1.0", "name": "n", "type": "palisade-cni",
                "socket": "/nonexistent/socket", "queue": "/nonexistent/queue", "waitSeconds": 0});
            config[key] = json!(value);
            config.to_string().into_bytes()
        };
        let mut answers = Vec::new();
        for (at, (name, _)) in sound.iter().enumerate() {
            let mut variables = sound;
            variables[at] = (name, HOSTILE);
            answers.push(run(invocation(&variables), Ok(config("name", "n"))));
        }
        for key in ["name", "cniVersion", "socket", "queue", "type", HOSTILE] {
            answers.push(run(invocation(&sound), Ok(config(key, HOSTILE))));
        }
        answers.push(run(invocation(&sound), Ok(HOSTILE.into())));
        answers.push(run(invocation(&sound), Err(io::Error::other(HOSTILE))));
        let mut printed = 0;
        for (text, _) in answers {
            let hidden = |c: &char| *c != '\n' && palisade_text::is_unprintable(*c);
            assert_eq!(text.chars().find(hidden), None, "{text:?}");
            assert_eq!(text.lines().count(), 1, "{text:?}");
            assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text:?}");
            printed += usize::from(text.contains("forged"));
        }
        assert!(
            printed >= 8,
            "the hostile text is in {printed} results only"
        );
    }
}

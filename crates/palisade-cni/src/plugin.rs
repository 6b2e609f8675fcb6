//! The operations, one function each.

use crate::agent::{Agent, Unanswered};
use crate::answer::{Version, answer};
use crate::error::CniError;
use crate::invocation::{Command, Invocation};
use crate::network::{self, Network};
use crate::queue::Queue;
use palisade_api::{CniAdd, CniAdded, CniAttachment, CniChained, CniCheck, CniDone, CniGc, path};
use palisade_text::printable_json;
use serde_json::{Value, json};
use std::io;
use std::process::ExitCode;
use std::time::Duration;

/// How often an agent that ends in the middle is asked again.
const TRIES: usize = 5;

/// Runs one call. Returns what belongs on standard output, and the exit code.
///
/// `input` is standard input, or why it could not be read.
pub fn run(
    invocation: Result<Invocation, CniError>,
    input: io::Result<Vec<u8>>,
) -> (String, ExitCode) {
    let mut version = Version::V1_1_0.name().to_owned();
    let operate = || -> Result<Option<Value>, CniError> {
        let invocation = invocation?;
        let input = input.map_err(|source| CniError::Io {
            doing: "reading the network configuration".to_owned(),
            source,
        })?;
        if invocation.command == Command::Version {
            return Ok(Some(versions(&input)));
        }
        let network = Network::read(&input)?;
        let known = network.version()?;
        known.name().clone_into(&mut version);
        let call = Call {
            agent: Agent::new(&network.socket, Duration::from_secs(network.wait_seconds)),
            invocation,
            network,
            version: known,
        };
        match call.invocation.command {
            Command::Add => call.add().map(Some),
            Command::Del => call.del().map(|()| None),
            Command::Check => call.check().map(|()| None),
            Command::Gc => call.gc().map(|()| None),
            Command::Status | Command::Version => call.status().map(|()| None),
        }
    };
    match operate() {
        Ok(Some(value)) => {
            let text = value.to_string();
            (format!("{}\n", printable_json(&text)), ExitCode::SUCCESS)
        }
        Ok(None) => (String::new(), ExitCode::SUCCESS),
        Err(error) => {
            let failure = error.wire(&version);
            let text = serde_json::to_string(&failure).unwrap_or_else(|_| error.to_string());
            (format!("{}\n", printable_json(&text)), ExitCode::FAILURE)
        }
    }
}

/// VERSION answers also where the configuration cannot be read.
fn versions(input: &[u8]) -> Value {
    let asked = Network::read(input).ok().map(|network| network.cni_version);
    let version = asked.filter(|name| Version::of(name).is_some());
    json!({
        "cniVersion": version.unwrap_or_else(|| Version::V1_1_0.name().to_owned()),
        "supportedVersions": Version::ALL.map(Version::name),
    })
}

struct Call {
    invocation: Invocation,
    network: Network,
    version: Version,
    agent: Agent,
}

impl Call {
    fn attachment(&self) -> CniAttachment {
        CniAttachment {
            container: self.invocation.container.clone(),
            network: self.network.name.clone(),
            interface: self.invocation.interface.clone(),
        }
    }

    fn refused(&self, unanswered: Unanswered) -> CniError {
        unanswered.error(&self.network.socket)
    }

    fn netns(&self) -> &str {
        self.invocation.netns.as_deref().unwrap_or_default()
    }

    fn add(&self) -> Result<Value, CniError> {
        let pod = self.invocation.argument("K8S_POD_NAME");
        let namespace = self.invocation.argument("K8S_POD_NAMESPACE");
        let mut addresses = self.network.addresses()?;
        if let Some(text) = self.invocation.argument("IP") {
            addresses = text
                .split(',')
                .map(network::address)
                .collect::<Result<_, _>>()?;
        }
        let request = CniAdd {
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
            chained: self.chained()?,
        };
        let added: CniAdded = self
            .agent
            .send("POST", path::CNI, &request)
            .map_err(|unanswered| self.refused(unanswered))?;
        // Chained, the answer is what the plugins before made.
        Ok(match &self.network.prev_result {
            Some(previous) => previous.clone(),
            None => answer(
                self.version,
                &self.invocation.interface,
                self.netns(),
                &added,
            ),
        })
    }

    /// What the plugins before this one made, if there were any.
    fn chained(&self) -> Result<Option<CniChained>, CniError> {
        let Some(previous) = &self.network.prev_result else {
            return Ok(None);
        };
        let wrong = |reason: String| CniError::Configuration {
            field: "prevResult",
            reason,
        };
        let interfaces = previous["interfaces"].as_array().ok_or_else(|| {
            wrong("names no interfaces; a chain needs version 0.3.0 or later".to_owned())
        })?;
        // Bridges come before the port that the container hangs on.
        let host = interfaces
            .iter()
            .rfind(|interface| interface["sandbox"].as_str().is_none_or(str::is_empty))
            .and_then(|interface| interface["name"].as_str())
            .ok_or_else(|| wrong("names no interface on the host's side".to_owned()))?;
        let ips = previous["ips"].as_array().map(Vec::as_slice);
        let addresses = ips
            .unwrap_or_default()
            .iter()
            .map(|ip| {
                let text = ip["address"].as_str().unwrap_or_default();
                Ok(network::address(text)?.to_string())
            })
            .collect::<Result<Vec<_>, CniError>>()?;
        if addresses.is_empty() {
            return Err(wrong("names no addresses".to_owned()));
        }
        Ok(Some(CniChained {
            host_interface: host.to_owned(),
            addresses,
        }))
    }

    fn del(&self) -> Result<(), CniError> {
        let attachment = self.attachment();
        for _ in 0..TRIES {
            match self.agent.send::<CniDone>("DELETE", path::CNI, &attachment) {
                // Not asked, or it died before it answered.
                Err(Unanswered::Down(_) | Unanswered::Cut(_)) => {}
                other => return self.ended(other),
            }
            let queue = Queue::lock(&self.network.queue)?;
            // An agent listens before it takes this lock: one that does will look at the queue, or
            // has. It is not asked while the lock is held, since it might be waiting for it.
            if !self.agent.listens() {
                return queue.push(&attachment);
            }
        }
        Err(CniError::Later(format!(
            "the agent at {} ended {TRIES} times before it answered",
            self.network.socket.display()
        )))
    }

    fn ended(&self, done: Result<CniDone, Unanswered>) -> Result<(), CniError> {
        done.map(|_| ())
            .map_err(|unanswered| self.refused(unanswered))
    }

    fn check(&self) -> Result<(), CniError> {
        let Some(previous) = &self.network.prev_result else {
            return Err(CniError::Configuration {
                field: "prevResult",
                reason: "CHECK needs what ADD answered".to_owned(),
            });
        };
        let ips = previous["ips"].as_array().map(Vec::as_slice);
        let addresses = ips
            .unwrap_or_default()
            .iter()
            .filter_map(|ip| ip["address"].as_str())
            .map(|text| Ok(network::address(text)?.to_string()))
            .collect::<Result<Vec<_>, CniError>>()?;
        let request = CniCheck {
            attachment: self.attachment(),
            netns: self.netns().to_owned(),
            addresses,
        };
        self.ended(self.agent.send("POST", path::CNI_CHECK, &request))
    }

    fn gc(&self) -> Result<(), CniError> {
        let request = CniGc {
            network: self.network.name.clone(),
            valid: self
                .network
                .valid()
                .iter()
                .map(|attachment| CniAttachment {
                    container: attachment.container.clone(),
                    network: self.network.name.clone(),
                    interface: attachment.interface.clone(),
                })
                .collect(),
        };
        self.ended(self.agent.send("POST", path::CNI_GC, &request))
    }

    fn status(&self) -> Result<(), CniError> {
        let unavailable = |why: String| Err(CniError::NotAvailable(why));
        match self.agent.ready() {
            Ok(probe) if probe.ok => Ok(()),
            Ok(probe) => unavailable(probe.reasons.join("; ")),
            Err(unanswered) => unavailable(self.refused(unanswered).to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Colours, C1, line ends and what turns text round.
    const HOSTILE: &str = "\u{1b}[31m\u{9b}2J\u{85}\r\n\tforged\u{202e}\u{2028}";

    fn invocation(variables: &[(&str, &str)]) -> Result<Invocation, CniError> {
        Invocation::from_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
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
        let mut told = 0;
        for (text, _) in answers {
            let hidden = |c: &char| *c != '\n' && palisade_text::is_hidden(*c);
            assert_eq!(text.chars().find(hidden), None, "{text:?}");
            assert_eq!(text.lines().count(), 1, "{text:?}");
            assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text:?}");
            told += usize::from(text.contains("forged"));
        }
        assert!(told >= 8, "the hostile text is told in {told} answers only");
    }
}

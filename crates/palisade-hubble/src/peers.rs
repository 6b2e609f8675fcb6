//! The service `peer.Peer`: which nodes serve this API, and every change of that.
//!
//! Promises: this node is told first; a node that changes its address or TLS is told as updated.
//!
//! Never: finds nodes; it passes on those that it is given.

use crate::config::{HubbleConfig, HubblePeer};
use crate::limits::QUEUE;
use crate::proto::peer::peer_server::Peer;
use crate::proto::peer::{ChangeNotification, ChangeNotificationType, NotifyRequest, Tls};
use crate::service::HubbleService;
use std::collections::BTreeMap;
use tokio::sync::mpsc::{self, Sender};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

type Notifications = Sender<Result<ChangeNotification, Status>>;

#[tonic::async_trait]
impl Peer for HubbleService {
    type NotifyStream = ReceiverStream<Result<ChangeNotification, Status>>;

    async fn notify(
        &self,
        _: Request<NotifyRequest>,
    ) -> Result<Response<Self::NotifyStream>, Status> {
        let permit = self.stream_permit()?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        let service = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = notify(service.config(), &sender) => {}
                () = service.stopped() => {}
                () = sender.closed() => {}
            }
            drop(permit);
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Sends every node, and then changes, until nobody receives them.
async fn notify(config: &HubbleConfig, sender: &Notifications) {
    let mut given = config.peers.clone();
    let mut known = BTreeMap::new();
    loop {
        let peers = given.borrow_and_update().clone();
        let own = config.own.iter().cloned();
        let others = peers.into_iter().filter(|peer| peer.node != config.node);
        let nodes: Vec<HubblePeer> = own.chain(others).collect();
        for change in changes(&mut known, &nodes) {
            let (kind, peer) = change;
            if sender
                .send(Ok(notification(config, kind, &peer)))
                .await
                .is_err()
            {
                return;
            }
        }
        if given.changed().await.is_err() {
            // Nobody changes them any more.
            sender.closed().await;
            return;
        }
    }
}

/// What is to be told, and notes it as told.
fn changes(
    known: &mut BTreeMap<String, HubblePeer>,
    nodes: &[HubblePeer],
) -> Vec<(ChangeNotificationType, HubblePeer)> {
    let mut changes = Vec::new();
    known.retain(|name, peer| {
        let stays = nodes.iter().any(|node| node.node == *name);
        if !stays {
            changes.push((ChangeNotificationType::PeerDeleted, peer.clone()));
        }
        stays
    });
    for node in nodes {
        let kind = match known.get(&node.node) {
            Some(peer) if peer == node => continue,
            Some(_) => ChangeNotificationType::PeerUpdated,
            None => ChangeNotificationType::PeerAdded,
        };
        known.insert(node.node.clone(), node.clone());
        changes.push((kind, node.clone()));
    }
    changes
}

fn notification(
    config: &HubbleConfig,
    kind: ChangeNotificationType,
    peer: &HubblePeer,
) -> ChangeNotification {
    ChangeNotification {
        name: config.peer_name(&peer.node),
        address: peer.address.clone(),
        r#type: kind as i32,
        tls: peer.tls.then(|| Tls {
            server_name: config.tls_name(&peer.node),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_once() {
        let peer = |node: &str, address: &str| HubblePeer {
            node: node.to_owned(),
            address: address.to_owned(),
            tls: false,
        };
        let mut known = BTreeMap::new();
        let mut update = |nodes: &[HubblePeer]| {
            let changes = changes(&mut known, nodes).into_iter();
            let changes: Vec<_> = changes.map(|(kind, peer)| (kind, peer.address)).collect();
            changes
        };
        let change = |kind, address: &str| (kind, address.to_owned());
        use ChangeNotificationType::{PeerAdded, PeerDeleted, PeerUpdated};
        let both = [peer("b", "1"), peer("a", "2")];
        assert_eq!(
            update(&both),
            [change(PeerAdded, "1"), change(PeerAdded, "2")]
        );
        assert_eq!(update(&both), []);
        let moved = [peer("a", "3"), peer("c", "4")];
        let expected = [
            change(PeerDeleted, "1"),
            change(PeerUpdated, "3"),
            change(PeerAdded, "4"),
        ];
        assert_eq!(update(&moved), expected);
    }
}

//! Batches, rejections, generations, dumps and notifications of nf_tables.

use crate::need_root;
use std::process::Command;
use std::time::Duration;

use palisade_sys::Errno;
use palisade_sys::netns::{NetNs, run_in};
use palisade_sys::nfnetlink::nf_tables::*;
use palisade_sys::nfnetlink::{
    BatchError, KernelNfEvents, KernelNfnetlink, NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTABLES,
    NLM_F_CREATE, NLM_F_EXCL, NfBatch, NfEvent, NfEvents, NfRequest, Nfnetlink,
};

use crate::support::TestNetNs;

const INET: u8 = 1;

fn table(batch: &mut NfBatch, name: &str) {
    batch
        .push(NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL, INET, |w| {
            w.text(NFTA_TABLE_NAME, name);
        })
        .unwrap();
}

fn chain(batch: &mut NfBatch, table: &str, name: &str) {
    batch
        .push(NFT_MSG_NEWCHAIN, NLM_F_CREATE, INET, |w| {
            w.text(NFTA_CHAIN_TABLE, table).text(NFTA_CHAIN_NAME, name);
        })
        .unwrap();
}

fn names(nf: &mut KernelNfnetlink, kind: u8, attr: u16) -> Vec<String> {
    let query = NfRequest::new("listing", NFNL_SUBSYS_NFTABLES, kind, INET, |_| {}).unwrap();
    let mut names: Vec<_> = nf
        .dump(&query)
        .unwrap()
        .iter()
        .map(|o| {
            o.attrs()
                .require(attr, "name")
                .unwrap()
                .text()
                .unwrap()
                .to_owned()
        })
        .collect();
    names.sort();
    names
}

fn nft(netns: &NetNs, command: &str) {
    run_in(netns, || {
        assert!(Command::new("nft").arg(command).status().unwrap().success());
    })
    .unwrap();
}

#[test]
fn a_batch_is_all_or_nothing() {
    if !need_root() {
        return;
    }
    let test = TestNetNs::new("batch");
    let mut nf = KernelNfnetlink::open(&test.netns).unwrap();
    let mut batch = NfBatch::nf_tables();
    table(&mut batch, "t");
    chain(&mut batch, "t", "a");
    nf.commit(&batch).unwrap();
    assert_eq!(names(&mut nf, NFT_MSG_GETCHAIN, NFTA_CHAIN_NAME), ["a"]);

    let mut bad = NfBatch::nf_tables();
    chain(&mut bad, "t", "b");
    chain(&mut bad, "nowhere", "c");
    chain(&mut bad, "nowhere either", "d");
    chain(&mut bad, "t", "e");
    match nf.commit(&bad).unwrap_err() {
        BatchError::Refused {
            index,
            of,
            also,
            error,
            ..
        } => {
            assert_eq!((index, of, also), (Some(1), 4, 1));
            assert_eq!(error.errno, Errno::ENOENT);
        }
        other => panic!("{other}"),
    }
    assert_eq!(names(&mut nf, NFT_MSG_GETCHAIN, NFTA_CHAIN_NAME), ["a"]);
    // Sequence numbers still match afterwards.
    let mut good = NfBatch::nf_tables();
    chain(&mut good, "t", "b");
    nf.commit(&good).unwrap();
    assert_eq!(
        names(&mut nf, NFT_MSG_GETCHAIN, NFTA_CHAIN_NAME),
        ["a", "b"]
    );
}

#[test]
fn a_changed_ruleset_has_the_next_generation() {
    if !need_root() {
        return;
    }
    let test = TestNetNs::new("stale");
    let mut nf = KernelNfnetlink::open(&test.netns).unwrap();
    let seen = nf.generation().unwrap();
    nft(&test.netns, "add table inet foreign");
    let now = nf.generation().unwrap();
    assert_eq!(now, seen + 1);
}

#[test]
fn tens_of_megabytes_are_one_transaction() {
    if !need_root() {
        return;
    }
    let test = TestNetNs::new("large");
    let mut nf = KernelNfnetlink::open(&test.netns).unwrap();
    let mut batch = NfBatch::nf_tables();
    table(&mut batch, "t");
    let count = 20_000;
    let long = "x".repeat(200);
    for number in 0..count {
        let name = format!("{long}{number}");
        batch
            .push(NFT_MSG_NEWCHAIN, NLM_F_CREATE, INET, |w| {
                w.text(NFTA_CHAIN_TABLE, "t")
                    .text(NFTA_CHAIN_NAME, &name)
                    .bytes(NFTA_CHAIN_USERDATA, &[7; 250]);
            })
            .unwrap();
    }
    assert!(batch.byte_len() > 9_000_000, "{}", batch.byte_len());
    nf.commit(&batch).unwrap();
    let query = NfRequest::new(
        "listing",
        NFNL_SUBSYS_NFTABLES,
        NFT_MSG_GETCHAIN,
        INET,
        |_| {},
    );
    assert_eq!(nf.dump(&query.unwrap()).unwrap().len(), count);

    // Every message is rejected: the first one is still named, even if replies are lost.
    let mut bad = NfBatch::nf_tables();
    for _ in 0..100_000 {
        chain(&mut bad, "nowhere", "c");
    }
    let refused = nf.commit(&bad).unwrap_err();
    assert!(
        matches!(refused, BatchError::Refused { index: Some(0), .. }),
        "{refused}"
    );
    assert_eq!(
        nf.dump(
            &NfRequest::new("l", NFNL_SUBSYS_NFTABLES, NFT_MSG_GETCHAIN, INET, |_| {}).unwrap()
        )
        .unwrap()
        .len(),
        count
    );
}

#[test]
fn only_others_changes_are_told() {
    if !need_root() {
        return;
    }
    let test = TestNetNs::new("tamper");
    let mut nf = KernelNfnetlink::open(&test.netns).unwrap();
    let groups = [NFNLGRP_NFTABLES];
    let mut events = KernelNfEvents::open(&test.netns, &groups, Some(nf.portid())).unwrap();
    let mut batch = NfBatch::nf_tables();
    table(&mut batch, "mine");
    nf.commit(&batch).unwrap();
    let brief = Some(Duration::from_millis(20));
    assert_eq!(events.next_event(brief).unwrap(), None);

    nft(&test.netns, "flush ruleset");
    let mut kinds = Vec::new();
    while let Some(event) = events.next_event(Some(Duration::from_millis(200))).unwrap() {
        match event {
            NfEvent::Changed { portid, object, .. } => {
                assert_ne!(portid, nf.portid());
                kinds.push(object.kind);
            }
            NfEvent::Overrun => panic!("lost"),
        }
    }
    assert_eq!(kinds, [NFT_MSG_DELTABLE, NFT_MSG_NEWGEN]);
}

#[test]
fn the_refused_message_is_named() {
    if !need_root() {
        return;
    }
    let test = TestNetNs::new("named");
    let mut nf = KernelNfnetlink::open(&test.netns).unwrap();
    let mut batch = NfBatch::nf_tables();
    table(&mut batch, "t");
    table(&mut batch, "t");
    let refused = nf.commit(&batch).unwrap_err();
    assert_eq!(refused.errno(), Some(Errno::EEXIST));
    assert!(
        refused
            .to_string()
            .starts_with("message 1 of 2 in network namespace pal-sys-named")
    );
}

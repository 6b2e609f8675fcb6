//! The store against everything that can happen to its files.

use super::*;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

type Content = BTreeMap<String, (String, String)>;

fn store(state_dir: &Path) -> SnapshotStore {
    SnapshotStore::new(state_dir, "kubernetes", "here")
}

/// What another process finds.
fn restore(state_dir: &Path) -> Result<Option<Content>, SnapshotError> {
    let mut content = Content::new();
    let read = store(state_dir).restore(|entry| {
        let value = (entry.version.to_owned(), entry.text.to_owned());
        content.insert(entry.key.to_owned(), value);
    })?;
    Ok(read.map(|_| content))
}

fn put(store: &mut SnapshotStore, key: &str, version: &str, text: &str) {
    store.put(SnapshotEntry { key, version, text });
}

/// A key that is stored in the same file as `pods/a`.
fn neighbour(number: usize) -> String {
    let keys = (0..).map(|n| format!("pods/b{n}"));
    let mut same = keys.filter(|key| shard_of(key) == shard_of("pods/a"));
    same.nth(number).unwrap()
}

/// A folder as it was when a process died.
fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    let folder = Path::new("snapshot/kubernetes");
    std::fs::create_dir_all(to.path().join(folder)).unwrap();
    for entry in std::fs::read_dir(from.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let target = to.path().join(folder).join(entry.file_name());
        std::fs::copy(entry.path(), target).unwrap();
    }
    to
}

#[allow(clippy::disallowed_methods, reason = "a test damages a file")]
fn overwrite(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn what_was_saved_is_restored_once_it_is_marked() {
    let dir = tempfile::tempdir().unwrap();
    let mut saved = store(dir.path());
    assert_eq!(saved.restore(|_| panic!()).unwrap(), None);
    let mut content = Content::new();
    for number in 0..500 {
        let (key, text) = (
            format!("pods/shop/{number}"),
            format!("{{\"n\": {number}}}\n"),
        );
        put(&mut saved, &key, "7", &text);
        content.insert(key, ("7".to_owned(), text));
    }
    saved.save().unwrap();
    let before_mark = copy(dir.path());
    assert_eq!(restore(before_mark.path()).unwrap(), None);
    saved.set_mark(&["pods"], true).unwrap();
    assert_eq!(restore(dir.path()).unwrap().unwrap(), content);
    put(&mut saved, "pods/shop/1", "8", "");
    saved.remove("pods/shop/2");
    content.insert("pods/shop/1".to_owned(), ("8".to_owned(), String::new()));
    content.remove("pods/shop/2");
    saved.save().unwrap();
    assert_eq!(restore(dir.path()).unwrap().unwrap(), content);
    for entry in std::fs::read_dir(saved.folder()).unwrap() {
        let mode = entry.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn it_is_stale_since_it_was_last_known_to_be_followed() {
    let dir = tempfile::tempdir().unwrap();
    let mut saved = store(dir.path());
    saved.set_mark(&["pods"], true).unwrap();
    let followed = saved.mark.clone().unwrap();
    assert_eq!(followed.since(), followed.followed_at);
    saved.mark.as_mut().unwrap().followed_at -= 1_000;
    saved.set_mark(&["pods"], false).unwrap();
    let stale = saved.mark.clone().unwrap();
    assert!(stale.since() >= followed.since(), "{stale:?}");
    assert_eq!(stale.followed_at, followed.followed_at - 1_000);
    let mut next = store(dir.path());
    let read = next.restore(|_| {}).unwrap().unwrap();
    assert_eq!(
        (read.since(), &*read.complete),
        (stale.since(), &["pods".to_owned()][..])
    );
    next.set_mark(&["pods"], false).unwrap();
    assert_eq!(next.mark.as_ref().unwrap().since(), stale.since());
    next.set_mark(&["pods"], true).unwrap();
    assert_eq!(next.mark.unwrap().stale_since, None);
}

#[test]
fn a_process_that_dies_at_any_byte_leaves_what_it_had_saved() {
    let dir = tempfile::tempdir().unwrap();
    let mut saved = store(dir.path());
    let (first, second) = ("pods/a".to_owned(), neighbour(0));
    put(&mut saved, &first, "1", "one");
    saved.save().unwrap();
    saved.set_mark(&["pods"], true).unwrap();
    let path = saved.path(shard_of(&first));
    let mut states = vec![(
        std::fs::metadata(&path).unwrap().len(),
        restore(dir.path()).unwrap(),
    )];
    for step in 0..4 {
        match step {
            0 => put(&mut saved, &second, "2", "two"),
            1 => put(&mut saved, &first, "3", "three"),
            2 => saved.remove(&second),
            _ => put(&mut saved, &second, "4", "four"),
        }
        saved.save().unwrap();
        states.push((
            std::fs::metadata(&path).unwrap().len(),
            restore(dir.path()).unwrap(),
        ));
    }
    let whole = std::fs::read(&path).unwrap();
    for length in states[0].0..=whole.len() as u64 {
        let died = copy(dir.path());
        let torn = store(died.path()).path(shard_of(&first));
        overwrite(&torn, &whole[..usize::try_from(length).unwrap()]);
        let expected = states.iter().rev().find(|(end, _)| *end <= length).unwrap();
        assert_eq!(
            restore(died.path()).unwrap(),
            expected.1,
            "at byte {length}"
        );
        // What follows is not joined to the torn entry.
        let mut next = store(died.path());
        next.restore(|_| {}).unwrap();
        put(&mut next, &neighbour(1), "9", "nine");
        next.save().unwrap();
        let mut after = expected.1.clone().unwrap();
        after.insert(neighbour(1), ("9".to_owned(), "nine".to_owned()));
        assert_eq!(
            restore(died.path()).unwrap().unwrap(),
            after,
            "at byte {length}"
        );
    }
}

#[test]
fn a_file_that_is_damaged_at_any_byte_is_no_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let mut saved = store(dir.path());
    put(&mut saved, "pods/a", "1", "one");
    saved.remove(&neighbour(0));
    put(&mut saved, &neighbour(1), "2", "two");
    saved.save().unwrap();
    saved.set_mark(&["pods"], true).unwrap();
    let path = saved.path(shard_of("pods/a"));
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        for change in [0x01, 0x80, 0xff] {
            let damaged = copy(dir.path());
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            overwrite(&store(damaged.path()).path(shard_of("pods/a")), &bytes);
            let mut passed_on = 0;
            let error = store(damaged.path())
                .restore(|_| passed_on += 1)
                .unwrap_err();
            assert!(error.to_string().contains("is damaged at byte"), "{error}");
            assert_eq!(passed_on, 0);
            // It is reported once, and an empty one has begun.
            assert_eq!(restore(damaged.path()).unwrap(), None);
        }
    }
}

#[test]
fn a_mark_that_cannot_be_used_is_an_error_that_says_why() {
    let cases = [
        ("", "damaged"),
        ("{\"schema\":1}", "damaged"),
        (
            "{\"schema\":0}",
            "has schema 0, and this build reads schema 1",
        ),
        ("{\"schema\":2,\"new\":{}}", "has schema 2"),
    ];
    for (text, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        let mut saved = store(dir.path());
        put(&mut saved, "pods/a", "1", "one");
        saved.save().unwrap();
        overwrite(&saved.mark_path(), text.as_bytes());
        let error = restore(dir.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
        assert_eq!(restore(dir.path()).unwrap(), None);
    }
    let dir = tempfile::tempdir().unwrap();
    store(dir.path()).set_mark(&["pods"], true).unwrap();
    let elsewhere = SnapshotStore::new(dir.path(), "kubernetes", "there").restore(|_| {});
    assert!(
        elsewhere
            .unwrap_err()
            .to_string()
            .ends_with("mark.json is of here")
    );
}

#[test]
fn files_are_rewritten_when_most_of_them_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let mut saved = store(dir.path());
    let text = "x".repeat(1_000);
    put(&mut saved, &neighbour(0), "1", &text);
    saved.save().unwrap();
    saved.set_mark(&["pods"], true).unwrap();
    let mut longest = 0;
    for version in 0..1_000 {
        put(&mut saved, "pods/a", &version.to_string(), &text);
        saved.save().unwrap();
        saved.compact().unwrap();
        let path = saved.path(shard_of("pods/a"));
        let length = std::fs::metadata(path).unwrap().len();
        assert_eq!(length, saved.shards[shard_of("pods/a")].length);
        longest = length.max(longest);
    }
    assert!(
        (MIN_REWRITE - 2_000..MIN_REWRITE + 2_000).contains(&longest),
        "{longest}"
    );
    let restored = restore(dir.path()).unwrap().unwrap();
    assert_eq!(restored.len(), 2);
    assert_eq!(restored["pods/a"].0, "999");
}

#[test]
fn what_cannot_be_written_waits_and_too_much_of_it_ends_the_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let mut saved = store(dir.path());
    put(&mut saved, "pods/a", "1", "one");
    saved.save().unwrap();
    saved.set_mark(&["pods"], true).unwrap();
    let number = (0..SHARDS).find(|n| *n != shard_of("pods/a")).unwrap();
    let keys = (0..).map(|n| format!("pods/c{n}"));
    let key = keys
        .into_iter()
        .find(|key| shard_of(key) == number)
        .unwrap();
    // A folder is in the way.
    let path = saved.path(number);
    std::fs::create_dir(&path).unwrap();
    put(&mut saved, &key, "2", "two");
    let error = saved.save().unwrap_err();
    assert!(error.to_string().starts_with("opening "), "{error}");
    std::fs::remove_dir(&path).unwrap();
    // Without the second it is not what the source had.
    saved.set_mark(&["pods"], true).unwrap();
    assert_eq!(restore(copy(dir.path()).path()).unwrap(), None);
    saved.save().unwrap();
    saved.set_mark(&["pods"], true).unwrap();
    assert_eq!(restore(dir.path()).unwrap().unwrap().len(), 2);
    std::fs::remove_file(&path).unwrap();
    saved.shards[number] = SnapshotShard::default();
    std::fs::create_dir(&path).unwrap();
    put(&mut saved, &key, "3", &"x".repeat(MAX_UNSAVED));
    saved.save().unwrap_err();
    put(&mut saved, &key, "4", "four");
    assert!(matches!(saved.save(), Err(SnapshotError::Abandoned)));
    assert!(!saved.mark_path().exists());
}

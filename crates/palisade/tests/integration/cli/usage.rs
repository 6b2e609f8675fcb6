//! Help, invalid usage, and the exit codes of commands that need an agent.

use super::{Ran, World, alone, finish, run};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::Command;

const COMMANDS: [&str; 17] = [
    "agent",
    "status",
    "endpoint",
    "endpoint list",
    "endpoint get",
    "identity",
    "identity list",
    "policy",
    "policy list",
    "policy get",
    "workload",
    "workload add",
    "workload remove",
    "config",
    "validate",
    "explain",
    "connections",
];

fn split(line: &str) -> Ran {
    run(&line.split_whitespace().collect::<Vec<_>>())
}

#[test]
fn every_command_has_help() {
    for command in COMMANDS.into_iter().chain(["diff", "lint", "push"]) {
        let help = split(&format!("{command} --help"));
        assert_eq!((help.code, &*help.err), (0, ""), "{command}");
        let usage = format!("Usage: palisade {command}");
        assert!(help.out.contains(&usage), "{command}: {}", help.out);
        assert!(help.out.contains("--output <FORMAT>"), "{command}");
    }
    let explain = split("explain --help").out;
    for flag in [
        "--filename",
        "--from",
        "--to",
        "--port",
        "--protocol",
        "--icmp-type",
        "--source-port",
        "--exit-code",
    ] {
        assert!(explain.contains(flag), "{flag}");
    }
}

#[test]
fn the_program_alone_shows_help_and_its_version() {
    let alone = run(&[]);
    assert_eq!((alone.code, &*alone.out), (2, ""));
    let help = run(&["--help"]);
    assert_eq!(help.code, 0);
    for command in COMMANDS.iter().filter(|c| !c.contains(' ')) {
        let line = format!("\n  {command} ");
        assert!(alone.err.contains(&line), "{command}");
        assert!(help.out.contains(&line), "{command}");
    }
    assert!(help.out.contains("Exit codes: 0 success"));
    let version = run(&["--version"]);
    assert_eq!(version.code, 0);
    assert_eq!(
        version.out,
        format!("palisade {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn wrong_usage_is_exit_code_2_and_says_what_is_wrong() {
    let world = World::of(&[("a.yaml", super::PODS)]);
    let here = world.path();
    let cases = [
        ("frob".to_owned(), "unrecognized subcommand 'frob'"),
        ("validate".to_owned(), "--filename <PATH>"),
        (
            "validate -f /not/there".to_owned(),
            "no such file or directory: /not/there",
        ),
        (
            "connections -f /not/there".to_owned(),
            "no such file or directory: /not/there",
        ),
        (
            "lint -f /not/there".to_owned(),
            "no such file or directory: /not/there",
        ),
        (
            format!("validate -f {here} -f /not/there"),
            "no such file or directory: /not/there",
        ),
        (
            "explain -f /not/there --from a/b --to c/d --port 1".to_owned(),
            "no such file or directory: /not/there",
        ),
        (
            format!("diff -f {here} -f /not/there"),
            "no such file or directory: /not/there",
        ),
        (format!("diff -f {here}"), "diff needs -f OLD -f NEW"),
        ("diff -f - -f -".to_owned(), "only one of OLD and NEW"),
        (
            format!("connections -f {here} -o yaml"),
            "only the commands convert and suggest print YAML",
        ),
        (
            format!("connections -f {here} -o xml"),
            "invalid value 'xml'",
        ),
        (
            format!("explain -f {here} --to shop/web --port 1"),
            "--from <X>",
        ),
        (
            format!("explain -f {here} --from shop/web --to other/guest"),
            "--port",
        ),
        (
            format!("explain -f {here} --from shop/web --to other/guest --port 1 --protocol ICMP"),
            "cannot be used with",
        ),
        ("agent --mtu wide".to_owned(), "mtu: \"wide\""),
        (
            "agent --settle 5".to_owned(),
            "--settle: the parameter settle was removed: the directory is always read",
        ),
        ("workload add a/b".to_owned(), "--netns <NETNS>"),
        (
            "workload add a/b --netns n --label x".to_owned(),
            "write it as key=value",
        ),
        (
            "workload add a/b --netns n -4 -6".to_owned(),
            "cannot be used with",
        ),
    ];
    for (line, expected) in cases {
        let ran = split(&line);
        assert_eq!((ran.code, &*ran.out), (2, ""), "{line}: {ran:?}");
        assert!(ran.err.contains(expected), "{line}: {}", ran.err);
    }
}

#[test]
fn an_agent_that_is_not_there_is_exit_code_3() {
    let empty = World::of(&[]);
    let socket = empty.file("none.sock").display().to_string();
    for command in [
        "status",
        "endpoint list",
        "endpoint get shop/web",
        "identity list",
        "policy list",
        "policy get shop/web",
        "config",
        "workload remove shop/web",
        "workload add shop/web --netns web --label app=web",
        "explain --from shop/web --to shop/db --port 5432",
    ] {
        for format in ["text", "json"] {
            let ran = split(&format!("{command} -o {format} --socket {socket}"));
            assert_eq!((ran.code, &*ran.out), (3, ""), "{command}");
            let message = format!("palisade: cannot connect to the agent's socket {socket}: ");
            assert!(ran.err.starts_with(&message), "{}", ran.err);
            assert!(ran.err.contains("\n  try: "), "{}", ran.err);
        }
    }
}

/// Root may use every socket, so the program is run as another user, from a copy that every user can execute.
#[test]
fn a_socket_that_one_may_not_use_is_exit_code_4() {
    let world = World::of(&[]);
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(world.0.path(), 0o755);
    let socket = world.file("palisade.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    mode(&socket, 0);
    let program = world.file("palisade");
    {
        let _alone = alone();
        std::fs::copy(env!("CARGO_BIN_EXE_palisade"), &program).unwrap();
    }
    mode(&program, 0o755);
    let mut command = Command::new(&program);
    command.args(["status", "--socket", socket.to_str().unwrap()]);
    command.current_dir("/");
    if nix::unistd::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let ran = finish(command, "");
    assert_eq!((ran.code, &*ran.out), (4, ""), "{ran:?}");
    assert!(ran.err.contains("no permission to use the agent's socket"));
    assert!(ran.err.contains("try: sudo"));
}

/// Readers such as `head` close the pipe early; that is not an error and prints nothing.
#[test]
fn a_closed_pipe_is_no_failure() {
    let mut files = Vec::new();
    for i in 0..60 {
        let pod = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p{i}, namespace: shop}}\n\
             status: {{podIP: 10.9.0.{i}}}\n"
        );
        files.push((format!("{i}.yaml"), pod));
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(n, t)| (&**n, &**t)).collect();
    let world = World::of(&files);
    let mut command = Command::new("sh");
    let script = format!(
        "{} connections -f {} -o json | head -n 1",
        env!("CARGO_BIN_EXE_palisade"),
        world.path()
    );
    command.args(["-c", &script]);
    let ran = finish(command, "");
    assert_eq!((ran.code, &*ran.out, &*ran.err), (0, "{\n", ""));
}

#[test]
fn a_push_needs_an_etcd_and_manifests_without_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let nowhere = run(&["push", "-f", path]);
    assert_eq!(nowhere.code, 2, "{}", nowhere.err);
    assert!(
        nowhere.err.contains("try: palisade push --etcd"),
        "{}",
        nowhere.err
    );
    // Nobody listens at port 1.
    let push = ["push", "--etcd", "127.0.0.1:1", "-f", path];
    let empty = run(&push);
    assert_eq!(empty.code, 1, "{}", empty.err);
    assert!(empty.err.contains("no object") && empty.err.contains("--allow-empty"));
    let unreached = run(&[&push[..], &["--allow-empty"]].concat());
    assert_eq!(unreached.code, 3, "{}", unreached.err);
    assert!(
        unreached
            .err
            .contains("no endpoint of etcd can be reached: http://127.0.0.1:1")
    );
    let policy =
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec: {}\n";
    std::fs::write(dir.path().join("a.yaml"), policy.replace("spec", "spek")).unwrap();
    let wrong = run(&push);
    assert_eq!(wrong.code, 1, "{}", wrong.err);
    assert!(wrong.err.contains("a.yaml:4:"), "{}", wrong.err);
    assert!(wrong.err.contains("nothing was written: "), "{}", wrong.err);
}

//! `palisade completion`, and an agent whose configuration is rejected before it changes anything.

use super::{World, finish, run};
use std::process::Command;

#[test]
fn each_shell_gets_a_script() {
    for (shell, mark) in [
        ("bash", "complete -F _palisade"),
        ("zsh", "#compdef palisade"),
        ("fish", "complete -c palisade"),
    ] {
        let ran = run(&["completion", shell]);
        assert_eq!((ran.code, &*ran.err), (0, ""));
        assert!(ran.out.contains(mark), "{shell}");
        for word in ["ipam-pool", "endpoint", "no-follow"] {
            assert!(ran.out.contains(word), "{shell}: {word}");
        }
        let json = run(&["completion", shell, "-o", "json"]).json();
        assert_eq!(
            (&json["shell"], &json["script"]),
            (&shell.into(), &ran.out.into())
        );
    }
    assert_eq!(run(&["completion", "tcsh"]).code, 2);
}

/// Runs the completion script in bash.
#[test]
fn bash_completes_commands_and_flags() {
    let completed = |words: &str| {
        let mut command = Command::new("bash");
        let script = format!(
            "source <({} completion bash); COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _palisade palisade \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; \
             echo \"${{COMPREPLY[@]}}\"",
            env!("CARGO_BIN_EXE_palisade")
        );
        command.args(["--norc", "-c", &script]);
        let ran = finish(command, "");
        assert_eq!((ran.code, &*ran.err), (0, ""), "{ran:?}");
        ran.out.trim().to_owned()
    };
    assert_eq!(completed("palisade endp"), "endpoint");
    assert_eq!(completed("palisade endpoint g"), "get");
    assert_eq!(
        completed("palisade agent --ipam-"),
        "--ipam-pool --ipam-reserved"
    );
    assert_eq!(completed("palisade completion z"), "zsh");
}

/// Every error is reported with its origin: the file, the environment, the command line.
#[test]
fn an_agent_with_a_wrong_configuration_says_all_of_it_and_does_not_start() {
    let world = World::of(&[(
        "palisade.conf",
        "settle: 10\nmonitor-rat: 5\nipam-pool: [10.1.0.0/24]\nmasquerade: sometimes\n",
    )]);
    let file = world.file("palisade.conf");
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
    command
        .args([
            "agent",
            "--config",
            file.to_str().unwrap(),
            "--ipam-reserved",
            "10.9.0.1",
        ])
        .env_remove("PALISADE_SOCKET")
        .env("PALISADE_MTU", "9")
        .env("PALISADE_POOL_IPV4", "10.9.0.0/24");
    let mut ran = finish(command, "");
    ran.err = ran.err.replace(&format!("{}/", world.path()), "");
    assert_eq!((ran.code, &*ran.out), (2, ""));
    assert_eq!(
        ran.err,
        "palisade: configuration: 6 problems\n  \
         palisade.conf:1:1: the parameter settle was removed: the directory is always read once it was unchanged \
         for 100 milliseconds; remove it\n  \
         palisade.conf:2:1: unknown parameter \"monitor-rat\"; did you mean monitor-rate?\n  \
         PALISADE_POOL_IPV4: the parameter pool-ipv4 was removed: ipam-pool has the networks of both families, \
         such as 10.245.0.0/24,fd50:616c:6973::/64\n  \
         mtu: \"9\" (PALISADE_MTU) is not a number from 1280 to 65535\n  \
         masquerade: \"sometimes\" (palisade.conf:4:1) must be one of off, outside\n  \
         ipam-reserved (--ipam-reserved) and ipam-pool (palisade.conf:3:1) contradict each other: \
         10.9.0.1-10.9.0.1 is not in a pool, so the reservation has no effect\n"
    );
    let missing = run(&["agent", "--config", "/no/such/file"]);
    assert_eq!(missing.code, 2);
    assert!(
        missing
            .err
            .contains("configuration: reading /no/such/file: No such file"),
        "{missing:?}"
    );
}

/// What a package upgrade asks before it restarts the agent: a file of a former release is told apart.
#[test]
fn a_file_is_checked_without_an_agent() {
    let world = World::of(&[
        ("old.yaml", "monitor-rate: 5\nkubeconfig: /k\nmtu: 9\n"),
        ("new.yaml", "monitor-rate: 5\nkubernetes: /k\n"),
    ]);
    let check = |name: &str| {
        let file = world.file(name);
        run(&["config", "--check", file.to_str().unwrap()])
    };
    let refused = check("old.yaml");
    assert_eq!((refused.code, &*refused.out), (2, ""));
    for part in [
        "old.yaml:2:1: the parameter kubeconfig was removed: set kubernetes to the path of the kubeconfig file",
        "mtu: \"9\"",
    ] {
        assert!(refused.err.contains(part), "{}", refused.err);
    }
    let accepted = check("new.yaml");
    assert_eq!((accepted.code, &*accepted.err), (0, ""));
    let file = world.file("new.yaml");
    let json = run(&["config", "--check", file.to_str().unwrap(), "-o", "json"]).json();
    let parameters = json["parameters"].as_array().unwrap();
    let rate = parameters.iter().find(|p| p["name"] == "monitor-rate");
    assert_eq!(rate.unwrap()["value"], "5");
    assert_eq!(check("missing.yaml").code, 2);
}

//! Grace periods with a slowly processed packet: its processing has ended when the wait ends, with both
//! methods.

use crate::need_root;
use palisade_sys::Errno;
use palisade_sys::grace::{GracePeriod, KernelGracePeriod};
use palisade_sys::netns::run_in;
use std::fmt::Write;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::TestNetNs;

/// Depth of the jumps, and number of jumps per level.
const DEPTH: usize = 6;
const WIDTH: usize = 20;

/// Chains in which a packet to port 9 is processed slowly and counted at the end.
fn long_way() -> String {
    let mut text = format!("table inet t {{\ncounter end {{}}\nchain c{DEPTH} {{ }}\n");
    for depth in (0..DEPTH).rev() {
        let jumps = format!("jump c{}\n", depth + 1).repeat(WIDTH);
        writeln!(text, "chain c{depth} {{\n{jumps}}}").unwrap();
    }
    text + "chain out {\ntype filter hook output priority 0; policy accept;\n\
            udp dport 9 jump c0\nudp dport 9 counter name end\n}\n}\n"
}

/// Runs `nft` without `ip netns exec`, whose mounts would themselves wait for a grace period.
fn nft(test: &TestNetNs, script: &str) -> String {
    let run = || Command::new("nft").arg(script).output().unwrap();
    let output = run_in(&test.netns, run).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whether the packet has reached the end of the chains.
fn counted(test: &TestNetNs) -> bool {
    nft(test, "list counter inet t end").contains("packets 1 ")
}

/// Whether the processing of a packet that was in the chains when `wait` began has ended when it returns.
fn is_done(wait: impl FnOnce()) -> bool {
    let test = TestNetNs::new("grace");
    nft(&test, &long_way());
    let [begun, returned] = [(); 2].map(|()| AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (netns, begun, returned) = (&test.netns, &begun, &returned);
        let sending = scope.spawn(move || {
            let send = || {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                begun.store(true, Ordering::SeqCst);
                socket.send_to(b"x", "127.0.0.1:9").unwrap();
                returned.store(true, Ordering::SeqCst);
            };
            run_in(netns, send).unwrap();
        });
        while !begun.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(100));
        assert!(
            !returned.load(Ordering::SeqCst),
            "the way is too short to tell anything"
        );
        wait();
        let done = counted(&test);
        sending.join().unwrap();
        assert!(counted(&test));
        done
    })
}

/// Makes `membarrier` fail for the calling thread as on a kernel with `nohz_full`. Cannot be undone.
fn refuse_membarrier() {
    const LOAD: u16 = 0x20;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let refused = libc::SECCOMP_RET_ERRNO | Errno::EINVAL as u32;
    let mut filter = [
        step(LOAD, 0, 0, 0),
        step(JUMP_EQUAL, 0, 1, libc::SYS_membarrier as u32),
        step(RETURN, 0, 0, refused),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program points to `filter`, which outlives both calls; the kernel copies it.
    let result = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                std::ptr::from_ref(&program),
            )
    };
    assert_eq!(result, 0);
}

/// A wait that was begun does not block; it is over when it is finished, or when the next one is.
fn background(grace: &mut KernelGracePeriod) {
    // The packet may arrive meanwhile where another program has this processor, but not each time.
    let mut blocks = || {
        let is_done = is_done(|| grace.begin().unwrap());
        grace.finish().unwrap();
        is_done
    };
    assert!(!(0..10).all(|_| blocks()), "the beginning of a wait blocks");
    assert!(is_done(|| {
        grace.begin().unwrap();
        grace.finish().unwrap();
    }));
    grace.finish().unwrap();
    assert!(is_done(|| {
        grace.begin().unwrap();
        grace.wait().unwrap();
    }));
}

#[test]
fn a_packet_under_way_is_done_after_either_wait() {
    if !need_root() {
        return;
    }
    assert!(!is_done(|| ()), "without a wait it is not");
    let timed = |grace: &mut KernelGracePeriod| {
        let began = Instant::now();
        for _ in 0..20 {
            grace.wait().unwrap();
        }
        eprintln!("{}: {:?} each", grace.method(), began.elapsed() / 20);
    };
    let mut grace = KernelGracePeriod::new().unwrap();
    timed(&mut grace);
    assert!(is_done(|| grace.wait().unwrap()));
    background(&mut grace);
    // In a separate thread, because the filter applies to the thread that installs it.
    let otherwise = std::thread::spawn(move || {
        refuse_membarrier();
        let mut grace = KernelGracePeriod::new().unwrap();
        assert_eq!(grace.method(), "BPF map of maps");
        timed(&mut grace);
        grace
    });
    let mut grace = otherwise.join().unwrap();
    assert!(is_done(|| grace.wait().unwrap()));
    background(&mut grace);
}

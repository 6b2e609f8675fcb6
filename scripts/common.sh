# Shared by the scripts of this folder; sourced, not run.
#
# Sets ROOT and TARGET, makes rustup's programs findable, and defines say, fail, as_root.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
TOOLS=$TARGET/tools
cd "$ROOT"

# rustup installs here and tells only new shells; sbin holds ip and nft, and is not on a user's PATH.
for folder in "${CARGO_HOME:-${HOME:-/root}/.cargo}/bin" "$TOOLS/bin" /usr/local/sbin /usr/sbin /sbin; do
    case ":$PATH:" in
        *":$folder:"*) ;;
        *) PATH=$PATH:$folder ;;
    esac
done
export PATH

# Bold on a terminal, plain in a log.
if [ -t 1 ]; then
    BOLD=$'\033[1m' PLAIN=$'\033[0m'
else
    BOLD='' PLAIN=''
fi

say() { printf '%s==> %s%s\n' "$BOLD" "$*" "$PLAIN"; }

fail() {
    printf '%serror:%s %s\n' "$BOLD" "$PLAIN" "$*" >&2
    exit 1
}

# Runs a command as root: directly, or by sudo with the environment kept.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo -E env "PATH=$PATH" "$@"
    else
        fail "this needs root, and there is no sudo: run it as root ($*)"
    fi
}

# What cargo runs test programs with, where they need root.
root_runner() {
    if [ "$(id -u)" != 0 ]; then
        echo "sudo -E env PATH=$PATH"
    fi
}

# The version of the workspace.
workspace_version() { sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml; }

# The mistakes that can be switched on, all of them.
FAULTS=palisade-agent/faults,palisade-bpf/faults,palisade-dataplane/faults,palisade-kubernetes/faults,palisade-source/faults,palisade-testkit/faults
# What every test program is built with. Cargo unifies the features of what is built together, so there is one set of
# them for all, with the faults (a test of an atomic each), and no crate is compiled twice. Programs that are installed
# have no faults: build_static looks.
TESTS=(--workspace --features "$FAULTS")
# The same for a program of the testkit: with one test, the features are those of the tests.
WORKSPACE=("${TESTS[@]}" --test tidy)

# What the rings are built by: the compiler with clippy in it, so that what is tested and what is linted is built once.
# Cargo keeps such a build apart from that of a plain `cargo test`, but for dependencies.
use_clippy_driver() { export RUSTC_WORKSPACE_WRAPPER=clippy-driver; }

# Builds every test program. Fails if the compiler or clippy warns; cargo repeats the warnings of what it has built.
lint_build() {
    local log verdict=0
    log=$(mktemp)
    cargo test --locked --no-run "${TESTS[@]}" 2>&1 | tee "$log"
    [ "${PIPESTATUS[0]}" = 0 ] || verdict=1
    ! grep -qE '^warning: `.*` \(.*\) generated [0-9]+ warning' "$log" || verdict=1
    rm -f "$log"
    return "$verdict"
}

# The test programs that these arguments of cargo select, a line each: the folder of the crate, and the path.
test_programs() {
    cargo test --locked "${TESTS[@]}" "$@" --no-run --quiet --message-format json-render-diagnostics |
        sed -nE 's|.*"manifest_path":"([^"]*)/Cargo.toml".*"profile":\{[^}]*"test":true\}.*"executable":"([^"]*)".*|\1 \2|p'
}

# The name of a test program: its crate's folder, and what cargo calls it.
program_name() {
    local stem=${2##*/}
    echo "${1##*/}/${stem%-*}"
}

# Builds palisade and palisade-cni so that they need no other file, in $TARGET/static: profile, target.
build_static() {
    local profile=$1 target=$2 program folder=$1
    [ "$profile" != dev ] || folder=debug
    say "static programs ($profile, $target)"
    # Where this tree and the crates lie on this machine is not written into the programs.
    local flags="-C target-feature=+crt-static --remap-path-prefix=$ROOT=/palisade"
    flags+=" --remap-path-prefix=${CARGO_HOME:-${HOME:-/root}/.cargo}=/cargo"
    # The same for the C of jemalloc; its pages are as large as an arm64 kernel may have them.
    local c_flags="-ffile-prefix-map=$ROOT=/palisade"
    case $target in aarch64-*) export JEMALLOC_SYS_WITH_LG_PAGE=16 ;; esac
    # A target is named so that build scripts and macros, which run here, are linked as ever.
    env -u RUSTC_WORKSPACE_WRAPPER RUSTFLAGS="$flags" CFLAGS="${CFLAGS:-} $c_flags" CARGO_TARGET_DIR="$TARGET/static" \
        cargo build --locked --profile "$profile" --target "$target" -p palisade -p palisade-cni
    for program in palisade palisade-cni; do
        program=$TARGET/static/$target/$folder/$program
        # ldd says so of a program that needs no loader.
        ldd "$program" 2>&1 | grep -qE 'statically linked|not a dynamic executable' ||
            fail "$program is not static: $(ldd "$program" 2>&1)"
        # The variable that switches a fault on.
        ! grep -q PALISADE_FAULT "$program" || fail "$program has faults in it"
    done
}

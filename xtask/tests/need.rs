//! `scripts/need.sh` on machines that lack something. Each machine is a folder of programs, the
//! only ones that the script finds; what it would install or fetch is played by small scripts.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use larder_xtask::root;

/// What every Debian has.
const TOOLS: [&str; 16] = [
    "awk", "bash", "chmod", "cut", "dirname", "env", "grep", "head", "id", "mktemp", "realpath",
    "rm", "sed", "sort", "tail", "true",
];

struct Machine {
    home: PathBuf,
    programs: PathBuf,
}

impl Machine {
    /// A machine with all that is needed.
    fn new(name: &str) -> Self {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("need-{name}"));
        let programs = home.join("bin");
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&programs).expect("a folder");
        let machine = Self { home, programs };
        for tool in TOOLS {
            let real = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(tool));
            let real = real.into_iter().find(|path| path.exists());
            let real = real.ok_or(tool).expect("every Debian has it");
            symlink(real, machine.programs.join(tool)).expect("a link");
        }
        machine
            .with("cc", "exit 0")
            .with("make", "exit 0")
            .with("cargo", "echo cargo 1.99.0")
            .with("apt-get", "echo never >&2; exit 9")
            .with("df", "echo head; echo dev 99999999 0 99999999 1% /")
    }

    fn with(self, program: &str, body: &str) -> Self {
        let path = self.programs.join(program);
        let _ = fs::remove_file(&path);
        fs::write(&path, format!("#!/usr/bin/env bash\n{body}\n")).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it may run");
        self
    }

    fn without(self, program: &str) -> Self {
        fs::remove_file(self.programs.join(program)).expect("it was there");
        self
    }

    fn run(&self) -> Output {
        Command::new(self.programs.join("bash"))
            .arg(root().join("scripts/need.sh"))
            .env_clear()
            .env("PATH", &self.programs)
            .env("HOME", &self.home)
            .env("CARGO_TARGET_DIR", self.home.join("target"))
            .output()
            .expect("bash runs")
    }

    fn passes(&self, said: &[&str]) {
        let out = self.run();
        let told = format!("{out:?}");
        assert!(out.status.success(), "{told}");
        let lines = String::from_utf8(out.stdout).expect("text");
        assert_eq!(lines.lines().collect::<Vec<_>>(), said, "{told}");
        assert!(out.stderr.is_empty(), "{told}");
    }

    fn refuses(&self, what: &[&str]) {
        let out = self.run();
        let told = String::from_utf8(out.stderr).expect("text");
        assert!(!out.status.success(), "{told}");
        let last = told.lines().last().expect("it says why");
        for part in what {
            assert!(last.contains(part), "`{part}` is not in: {told}");
        }
    }
}

/// Plays apt-get: notes how it was called and brings the program that was missing.
fn apt_that_brings(program: &str) -> String {
    format!(
        "echo \"$@\" >> \"$HOME/calls\"\n\
         case \" $* \" in *' install '*) printf '#!/usr/bin/env bash\\nexit 0\\n' > \
         \"$HOME/bin/{program}\"; chmod +x \"$HOME/bin/{program}\" ;; esac"
    )
}

#[test]
fn nothing_is_said_when_nothing_is_missing() {
    let machine = Machine::new("complete");
    machine.passes(&[]);
    machine.passes(&[]);
}

#[test]
fn root_gets_a_compiler() {
    let machine = Machine::new("root")
        .with("id", "echo 0")
        .with("apt-get", &apt_that_brings("cc"))
        .without("cc");
    machine.passes(&[
        "need: reading the lists of packages",
        "need: installing gcc libc6-dev",
    ]);
    let calls = fs::read_to_string(machine.home.join("calls")).expect("apt-get was called");
    let install = calls.lines().last().expect("a call");
    assert!(
        install.ends_with("install -y --no-install-recommends gcc libc6-dev"),
        "{calls}"
    );
    machine.passes(&[]);
}

#[test]
fn a_user_with_sudo_gets_make() {
    let machine = Machine::new("sudo")
        .with("id", "echo 1000")
        .with("sudo", "shift; exec \"$@\"")
        .with("apt-get", &apt_that_brings("make"))
        .without("make");
    machine.passes(&[
        "need: reading the lists of packages",
        "need: installing make",
    ]);
}

#[test]
fn a_user_without_sudo_is_told_the_command() {
    let machine = Machine::new("user")
        .with("id", "echo 1000")
        .without("cc")
        .without("make");
    machine.refuses(&["sudo apt-get install -y gcc libc6-dev make"]);
    let machine = machine.with("sudo", "exit 1");
    machine.refuses(&["sudo apt-get install -y gcc libc6-dev make"]);
}

#[test]
fn a_machine_without_apt_is_told_what_is_needed() {
    let machine = Machine::new("other").without("cc").without("apt-get");
    machine.refuses(&["no apt-get here", "gcc libc6-dev"]);
}

#[test]
fn a_compiler_without_headers_is_no_compiler() {
    let machine = Machine::new("headers")
        .with("cc", "exit 1")
        .with("id", "echo 1000");
    machine.refuses(&["gcc libc6-dev"]);
}

#[test]
fn a_failed_installation_shows_its_last_lines() {
    let machine = Machine::new("broken").with("id", "echo 0").without("make");
    let out = machine.run();
    let told = String::from_utf8(out.stderr).expect("text");
    assert!(!out.status.success() && told.contains("never\n"), "{told}");
    assert!(told.contains("could not install make"), "{told}");
}

#[test]
fn missing_and_old_rust_are_named() {
    Machine::new("rust")
        .without("cargo")
        .refuses(&["Rust is missing", "rustup.rs"]);
    Machine::new("old")
        .with("cargo", "echo cargo 1.63.0")
        .refuses(&["1.63.0", "rustup.rs"]);
}

#[test]
fn a_missing_toolchain_is_fetched() {
    let toolchain = fs::read_to_string(root().join("rust-toolchain.toml")).expect("it is there");
    let channel = toolchain
        .lines()
        .find_map(|line| line.strip_prefix("channel = \"")?.strip_suffix('"'));
    let channel = channel.expect("a channel");
    let here = format!("echo {channel}-x86_64-unknown-linux-gnu");
    Machine::new("fetched").with("rustup", &here).passes(&[]);
    let fetching = format!("need: fetching Rust {channel}, which rust-toolchain.toml names");
    let other = "case \"$*\" in *list*) echo 1.70.0-x86_64-unknown-linux-gnu ;; esac";
    Machine::new("fetch")
        .with("rustup", other)
        .passes(&[&fetching]);
    let offline = "[ \"$2\" = list ] || { echo no network; exit 1; }";
    Machine::new("offline")
        .with("rustup", offline)
        .refuses(&["could not fetch Rust", channel]);
}

#[test]
fn a_full_disk_is_named() {
    let machine = Machine::new("full").with("df", "echo head; echo dev 9 9 2097152 1% /");
    machine.refuses(&["needs 6 GiB", "has 2048 MiB", "CARGO_TARGET_DIR"]);
    // What is built already is not built again.
    let built = machine.home.join("target/debug");
    fs::create_dir_all(&built).expect("a folder");
    fs::write(built.join("larder"), "").expect("a file");
    machine.passes(&[]);
}

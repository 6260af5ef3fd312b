//! Network namespaces: one for an aggregator, one for each client, and one between them that is a
//! bridge, loses datagrams, and has space for a relay.

use std::{
    io::{self, Write as _},
    process::{self, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// Where the aggregator listens, in its own namespace.
pub(crate) const SERVER: &str = "10.77.0.2:7700";
/// Where a relay does, in the one between.
pub(crate) const RELAY: &str = "10.77.0.1:7701";

/// The rules between: they count and drop, in both directions. Dropped on arrival: what a namespace
/// drops of its own, the sender hears of.
const LOSS: &str = "
table inet ciphergram {
  counter up {}
  counter up_lost {}
  counter down {}
  counter down_lost {}
  chain input {
    type filter hook input priority 0;
    udp dport 7701 counter name up
    udp dport 7701 numgen random mod 100 < 5 counter name up_lost drop
    udp sport 7700 counter name down
    udp sport 7700 numgen random mod 100 < 5 counter name down_lost drop
  }
}";

/// The rules of the ends, which count all that the relay sent, and headers without payloads (8
/// bytes of UDP, 64 of ours).
const ARRIVALS: &str = "
table inet ciphergram {
  counter whole {}
  counter trimmed {}
  chain input {
    type filter hook input priority 0;
    udp length != 72 counter name whole
    udp length 72 counter name trimmed
  }
}";

/// Further rules of the ends where no relay is between, to drop and mark as a full queue would: by
/// pipeline of the aggregator.
const DIRECT: &str = "
table inet ciphergram {
  counter lost {}
  counter marked {}
  counter first {}
  counter second {}
  chain input {
    type filter hook input priority 0;
    meta l4proto udp numgen random mod 100 < 5 counter name lost drop
    meta l4proto udp numgen random mod 100 < 10 ip ecn set ce counter name marked
    udp dport 7700 counter name first
    udp dport 7701 counter name second
  }
}";

/// Rules of the aggregator's end, with no word to the senders: of client 0 long datagrams get lost, of client 1 all.
const OBSTACLES: &str = "
table inet obstacles {
  chain input {
    type filter hook input priority 0;
    ip saddr 10.77.0.3 udp length > 1308 drop
    ip saddr 10.77.0.4 meta l4proto udp drop
  }
}";

/// Of client 0's end.
const OBSTACLES_BACK: &str = "
table inet obstacles {
  chain input {
    type filter hook input priority 0;
    udp length > 1308 drop
  }
}";

/// The namespaces of one round, gone with it.
pub(crate) struct Net {
    /// Of this process and of no other network of it.
    name: String,
    clients: usize,
    direct: bool,
}

impl Net {
    /// Makes namespaces for `clients` clients; where there cannot be any, prints why.
    pub(crate) fn new(clients: usize, direct: bool) -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let net = Self { name: format!("ciphergram-{}-{number}", process::id()), clients, direct };
        if let Err(why) = net.is_possible() {
            println!("SKIPPED, a round between network namespaces: {why}");
            return None;
        }
        net.make();
        Some(net)
    }

    fn is_possible(&self) -> Result<(), String> {
        let try_it = |words: &str| {
            let output = run(words, None).map_err(|e| format!("`{words}`: {e}"))?;
            let why = String::from_utf8_lossy(&output.stderr);
            let why = why.lines().next().unwrap_or_default().to_owned();
            if output.status.success() { Ok(()) } else { Err(format!("`{words}`: {why}")) }
        };
        try_it("nft --version")?;
        let probe = self.name("probe");
        try_it(&format!("ip netns add {probe}"))?;
        let found = try_it(&format!("ip netns exec {probe} nft list tables"));
        try_it(&format!("ip netns delete {probe}"))?;
        found
    }

    fn make(&self) {
        let between = self.name("between");
        self.add(&between);
        done(&format!("ip -n {between} link add bridge type bridge"));
        done(&format!("ip -n {between} link set bridge up"));
        done(&format!("ip -n {between} address add 10.77.0.1/24 dev bridge"));
        if !self.direct {
            load(&between, LOSS);
        }
        for (end, name) in self.ends().iter().enumerate() {
            self.add(name);
            done(&format!("ip -n {between} link add p{end} type veth peer name eth0 netns {name}"));
            // Otherwise a burst that leaves in one system call crosses as one packet, and the
            // kernel drops all of it or none.
            let single = "mtu 1500 gso_max_segs 1";
            done(&format!("ip -n {between} link set p{end} {single} master bridge up"));
            done(&format!("ip -n {name} link set eth0 {single} up"));
            done(&format!("ip -n {name} address add 10.77.0.{}/24 dev eth0", 2 + end));
            load(name, if self.direct { DIRECT } else { ARRIVALS });
        }
    }

    fn add(&self, name: &str) {
        done(&format!("ip netns add {name}"));
        done(&format!("ip -n {name} link set lo up"));
    }

    fn name(&self, of: &str) -> String {
        format!("{}-{of}", self.name)
    }

    /// Returns the aggregator's, then the clients'.
    fn ends(&self) -> Vec<String> {
        let clients = (0..self.clients).map(|client| self.name(&format!("client{client}")));
        [self.name("server")].into_iter().chain(clients).collect()
    }

    /// Returns the words that start a command in the namespace between.
    pub(crate) fn between(&self) -> String {
        format!("ip netns exec {}", self.name("between"))
    }

    /// In the aggregator's.
    pub(crate) fn server(&self) -> String {
        format!("ip netns exec {}", self.name("server"))
    }

    /// In a client's.
    pub(crate) fn client(&self, number: usize) -> String {
        format!("ip netns exec {}", self.name(&format!("client{number}")))
    }

    /// Loses long datagrams from and to client 0, and all by UDP of client 1.
    pub(crate) fn obstruct(&self) {
        load(&self.ends()[0], OBSTACLES);
        load(&self.ends()[1], OBSTACLES_BACK);
    }

    /// Without a relay: what the kernel lost and marked, and how many datagrams came to the
    /// aggregator's first pipeline and to its second.
    pub(crate) fn check_direct(&self) {
        let server = &self.ends()[0];
        let sum = |what: &str| self.ends().iter().map(|end| counted(end, what)).sum::<u64>();
        let (lost, marked) = (sum("lost"), sum("marked"));
        let pipelines = [counted(server, "first"), counted(server, "second")];
        println!(
            "  nft dropped {lost} datagrams and marked {marked}; {pipelines:?} came to pipelines"
        );
        assert!(
            lost > 0 && marked > 0 && pipelines.iter().all(|&count| count > 20),
            "{pipelines:?}"
        );
    }

    /// Prints the fate of datagrams: those that nft counted and dropped, and those of which a
    /// header arrived.
    pub(crate) fn report(&self) -> String {
        let between = self.name("between");
        let here = |name: &str| counted(&between, name);
        let [server, clients] = [&self.ends()[..1], &self.ends()[1..]].map(|ends| {
            let sum = |what: &str| ends.iter().map(|end| counted(end, what)).sum::<u64>();
            let (whole, trimmed) = (sum("whole"), sum("trimmed"));
            format!("{} arrived, {trimmed} of them trimmed", whole + trimmed)
        });
        format!(
            "up: nft dropped {} of {} datagrams; {server}\n  down: nft dropped {} of {} datagrams; \
             {clients}",
            here("up_lost"),
            here("up"),
            here("down_lost"),
            here("down")
        )
    }

    /// The kernel dropped single datagrams in both directions, and both ends saw some cut.
    pub(crate) fn check(&self) {
        let between = self.name("between");
        let here = |name: &str| counted(&between, name);
        let (up, down) = (here("up"), here("down"));
        let (up_lost, down_lost) = (here("up_lost"), here("down_lost"));
        assert!(up_lost > 0 && down_lost > 0, "nft dropped {up_lost} up, {down_lost} down");
        // A socket receives datagrams, nft counted packets: as many, so that each was one. The
        // relay may not have taken the last ones yet.
        let passed = up + down - up_lost - down_lost;
        let late = Instant::now() + Duration::from_secs(10);
        while self.received() < passed && Instant::now() < late {
            thread::sleep(Duration::from_millis(5));
        }
        let received = self.received();
        assert_eq!(passed, received, "packets that passed, datagrams that the relay received");
        for ends in [&self.ends()[..1], &self.ends()[1..]] {
            assert!(ends.iter().map(|end| counted(end, "trimmed")).sum::<u64>() > 0, "{ends:?}");
        }
    }

    /// Datagrams that sockets of the namespace between have taken, or had no space for.
    fn received(&self) -> u64 {
        let text = done(&format!("{} cat /proc/net/snmp", self.between()));
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let fields = names.split(' ').zip(values.split(' '));
        let wanted =
            fields.filter(|(name, _)| ["InDatagrams", "InErrors", "NoPorts"].contains(name));
        wanted.map(|(_, value)| value.parse::<u64>().unwrap()).sum()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in self.ends().into_iter().chain([self.name("between")]) {
            // It may be that it was never made, and a panic may be under way.
            let _ = run(&format!("ip netns delete {name}"), None);
        }
    }
}

/// Returns the packets of a counter.
fn counted(namespace: &str, counter: &str) -> u64 {
    let list = format!("ip netns exec {namespace} nft -j list counter inet ciphergram {counter}");
    let value: Value = serde_json::from_str(&done(&list)).unwrap();
    let found = value["nftables"].as_array().unwrap().iter().find_map(|v| v.get("counter"));
    found.unwrap()["packets"].as_u64().unwrap()
}

fn load(namespace: &str, rules: &str) {
    let words = format!("ip netns exec {namespace} nft -f -");
    let output = run(&words, Some(rules)).unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Runs a command that must succeed, and returns its output.
fn done(words: &str) -> String {
    let output = run(words, None).unwrap();
    assert!(output.status.success(), "`{words}`: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn run(words: &str, input: Option<&str>) -> io::Result<Output> {
    let mut words = words.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(input.unwrap_or_default().as_bytes())?;
    drop(pipe);
    child.wait_with_output()
}

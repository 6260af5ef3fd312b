//! `ciphergram serve`.

mod control;
mod live;
mod metrics;
mod pages;
mod shortage;
mod status;

use std::{net::SocketAddr, ops::ControlFlow};

use ciphergram_he::{Job, PublicKey, private_ranges::RangesEvaluationKey};
use ciphergram_nic::{
    federation::{FEW, FederationServer, Observation, ServerConfig},
    proto::{NodeId, Stats, Stranger},
    round::{AggregatorEvent, RoundSummary},
};
use serde_json::{Value, json};

use crate::{
    args::Serve,
    engines::engine,
    failure::Failure,
    files::{self, FileKind},
    nodes::{self, AllowList},
    report::{counted, say, warn},
};
use control::Control;
use live::Live;
use pages::Pages;
use status::Terms;

pub(crate) fn run(args: &Serve) -> Result<(), Failure> {
    let tune = args.link.tune.of_server().map_err(Failure::Misuse)?;
    let key = PublicKey::load(&args.agreed.key.path)?;
    let job = files::read_job(&args.agreed, &key)?;
    let (config, list) = settings(args, &key, &job)?;
    let scheme = key.parameters().scheme().name();
    let ServerConfig { clients, min_clients, rounds, .. } = config;
    let terms = Terms { scheme, clients, min_clients, rounds };
    let wires = args.link.transport.bind(args.listen, tune.pipelines)?;
    let mut server = FederationServer::new(wires, key, job, engine(args.place.engine), config)?;
    if let Some(path) = &args.link.capture {
        server.capture(files::create(path, FileKind::Capture)?)?;
    }
    let pages = args.metrics.map(|address| Pages::start(address, terms)).transpose()?;
    say_addresses(
        args.report.json,
        server.local_addr()?,
        pages.as_ref().map(Pages::address),
        terms,
    );
    let mut control = Control::start(server.commands(), list);
    let mut live = Live::new(args.report.json);
    let stats = server.run(|seen| {
        if let Some(pages) = &pages {
            pages.follow(&seen);
        }
        let event = match &seen {
            Observation::Event(event) => event,
            Observation::Progress(progress) => {
                live.show(progress);
                return ControlFlow::Continue(());
            }
        };
        control.follow(event);
        if let Some((value, line)) = describe(event) {
            if let Some(pages) = &pages {
                pages.note(&line);
            }
            say(args.report.json, &value, || line);
        }
        ControlFlow::Continue(())
    })?;
    drop(live);
    // Before the last line is printed, so that a request that follows it finds the same numbers.
    if let Some(pages) = &pages {
        pages.end(stats);
    }
    say_traffic(args.report.json, control.last_event(), &stats);
    if let Some(pages) = pages {
        pages.finish();
    }
    control.outcome()
}

/// Returns the settings of a server, and the list of nodes that it goes by.
fn settings(
    args: &Serve,
    key: &PublicKey,
    job: &Job,
) -> Result<(ServerConfig, AllowList), Failure> {
    let clients = args.clients.count.unwrap_or(job.limits().clients);
    let min_clients = args.clients.min_clients.unwrap_or(job.min_clients());
    if args.clients.min_clients.is_none() && min_clients > clients {
        let text = format!(
            "--clients {clients} is fewer than the {min_clients} whose sum the job lets anyone open: make a job for that \
             many, or say --min-clients {clients} here and at every join"
        );
        return Err(Failure::Misuse(text));
    }
    if min_clients > clients {
        let text =
            format!("--min-clients {min_clients} is more than the {clients} clients of a round");
        return Err(Failure::Misuse(text));
    }
    if min_clients < FEW {
        warn(&format!(
            "sums of {min_clients} may leave: one decrypted comes close to a single update"
        ));
    }
    if args.by_chunk && job.openers().is_ok() {
        let text = "--by-chunk: openers open sums of whole contributions alone";
        return Err(Failure::Misuse(text.into()));
    }
    let (identity, list, allowed) = nodes::server(args, job, clients)?;
    let config = ServerConfig {
        identity,
        allowed,
        clients,
        min_clients,
        rounds: args.rounds,
        join_deadline: args.join_deadline,
        wait_for_clients: args.wait_for_clients,
        round_deadline: args.deadline,
        whole: !args.by_chunk,
        poll: args.link.tune.poll,
        sizes: args.link.datagram,
        ranges_key: RangesEvaluationKey::of_job(
            job,
            key,
            &args.agreed.key.path,
            args.ranges_key.as_deref(),
        )?,
    };
    Ok((config, list))
}

/// Prints where clients find the server, and people its pages.
fn say_addresses(json: bool, listening: SocketAddr, pages: Option<SocketAddr>, terms: Terms) {
    say(json, &json!({"event": "listening", "address": listening.to_string()}), || {
        let Terms { clients, rounds, .. } = terms;
        let rounds = if rounds == 0 { "unending rounds".into() } else { counted(rounds, "round") };
        format!("listening on {listening}, {}, {rounds}", counted(clients, "client"))
    });
    if let Some(address) = pages {
        say(json, &json!({"event": "metrics", "address": address.to_string()}), || {
            format!("status at http://{address}/, metrics at http://{address}/metrics")
        });
    }
}

/// Prints the last event, with the traffic in all.
fn say_traffic(json: bool, event: &str, stats: &Stats) {
    let (received, sent) = (stats.received.wire_bytes(), stats.sent.wire_bytes());
    let value = json!({
        "event": event, "received_bytes": received, "sent_bytes": sent,
        "retransmitted_datagrams": stats.retransmitted, "congested_datagrams": stats.congested,
        "malformed_datagrams": stats.malformed, "handshakes_turned_away": stats.turned_away,
    });
    say(json, &value, || {
        format!(
            "{event}: {received} bytes received, {sent} sent, {} datagrams sent again, {} not understood, \
             {} strangers turned away",
            stats.retransmitted, stats.malformed, stats.turned_away
        )
    });
}

/// Describes an event worth a line; chunks settle by the hundred, and only the summary counts them.
fn describe(event: &AggregatorEvent) -> Option<(Value, String)> {
    let value = match event {
        AggregatorEvent::Joined { contributor, peer, missing } => json!({
            "event": "joined", "client": contributor, "node": peer.node.to_string(), "missing": missing,
        }),
        AggregatorEvent::Refused { contributor, reason } => {
            json!({"event": "refused", "client": contributor, "reason": reason})
        }
        AggregatorEvent::Resumed { round, contributor } => {
            json!({"event": "resumed", "client": contributor, "round": round})
        }
        AggregatorEvent::Preparing { round, clients } => {
            json!({"event": "preparing", "round": round, "clients": clients})
        }
        AggregatorEvent::Opened { round, contributors, chunks } => {
            json!({"event": "opened", "round": round, "clients": contributors, "chunks": chunks})
        }
        AggregatorEvent::OpenFailed { reason } => json!({"event": "open_failed", "reason": reason}),
        AggregatorEvent::Stranger { from, stranger } => stranger_json(*from, stranger),
        AggregatorEvent::TooFew(few) => shortage::json(few),
        AggregatorEvent::Allowed { added, removed, rebound } => {
            let [added, removed, rebound] = [added, removed, rebound]
                .map(|nodes| nodes.iter().map(NodeId::to_string).collect::<Vec<_>>());
            json!({"event": "allowed", "added": added, "removed": removed, "rebound": rebound})
        }
        AggregatorEvent::Lost { round, contributor } => {
            json!({"event": "lost", "round": round, "client": contributor})
        }
        AggregatorEvent::OpenerAttends { opener, peer } => {
            json!({"event": "opener_attends", "opener": opener, "node": peer.node.to_string()})
        }
        AggregatorEvent::OpenerAnswered { round, opener } => {
            json!({"event": "opener_answered", "round": round, "opener": opener})
        }
        AggregatorEvent::OpenerRefused { opener, reason } => {
            json!({"event": "opener_refused", "opener": opener, "reason": reason})
        }
        AggregatorEvent::TooFewAnswers { round, found, needed } => {
            json!({"event": "too_few_answers", "round": round, "found": found, "needed": needed})
        }
        AggregatorEvent::Closed(summary) => closed_json(summary),
        AggregatorEvent::Finished { round } => json!({"event": "finished", "round": round}),
        _ => return None,
    };
    Some((value, event.line()?))
}

fn stranger_json(from: SocketAddr, stranger: &Stranger) -> Value {
    let from = from.to_string();
    match stranger {
        Stranger::Unlisted(node) => json!({
            "event": "stranger", "address": from, "reason": "unlisted", "node": node.to_string(),
        }),
        Stranger::WrongKey => {
            json!({"event": "stranger", "address": from, "reason": "wrong_key"})
        }
    }
}

fn closed_json(s: &RoundSummary) -> Value {
    let contributed: Vec<_> =
        s.contributed.iter().map(|(c, n)| json!({"client": c, "chunks": n})).collect();
    json!({
        "event": "closed", "round": s.round, "chunks": s.closed + s.withheld, "summed": s.closed, "withheld": s.withheld,
        "reason": s.reason, "contributed": contributed,
    })
}

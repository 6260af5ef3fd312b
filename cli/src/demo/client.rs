//! One client process of the demo: trains on its shard, and takes part in every round.

use std::{
    fs, io,
    ops::ControlFlow,
    path::Path,
    time::{Duration, Instant},
};

use ciphergram_he::{
    Ledger, MemberFiles, OpenedSum, Update,
    codec::{Output, RangesFile},
};
use ciphergram_nic::{
    federation::{
        FederationClient, Participation, PathConfig, RoundResult,
        nodes::{LocalNodes, read_identity, read_node},
        spool::Spool,
    },
    wire::SocketWire,
};
use serde::{Deserialize, Serialize};

use super::{
    digits::DigitImages,
    model::{Classifier, TRAINING, Weights},
    training_seed,
};
use crate::{
    args::DemoClientArgs,
    engines::engine,
    failure::{Failure, at},
    report::print,
};

/// A client's report after a round, one line of JSON.
#[derive(Serialize, Deserialize)]
pub(super) struct ClientReport {
    pub(super) round: u32,
    pub(super) values: usize,
    pub(super) ciphertext_bytes: usize,
    /// Of openers' shares, which go up besides.
    pub(super) shares_bytes: usize,
    /// Bytes handed to the socket so far, headers, tags, acknowledgements and retransmissions
    /// included; UDP and IP headers not.
    pub(super) wire_bytes_sent: u64,
    /// Quantising and encrypting, which a thread does beside sending.
    pub(super) encrypting_s: f64,
    pub(super) exchanging_s: f64,
    /// Decrypting and decoding.
    pub(super) decrypting_s: f64,
    /// From the start of the training to the mean applied.
    pub(super) round_s: f64,
}

impl ClientReport {
    /// Returns the part of the round that was spent on encryption and decryption. All are wall
    /// times, so what the thread does while datagrams travel counts in full.
    pub(super) fn encryption_share(&self) -> f64 {
        (self.encrypting_s + self.decrypting_s) / self.round_s
    }
}

pub(crate) fn run(args: &DemoClientArgs) -> Result<(), Failure> {
    let number = usize::from(args.client);
    let own = args.folder.join("clients").join(format!("{number}.json"));
    let secret = args.folder.join("secret.json");
    // Under Paillier clients have keys of their own, and open by the secret one all the same.
    let path = if secret.exists() { secret } else { own };
    let mut files = MemberFiles::open(&path)?;
    files.ledger = Ledger::beside(&path);
    let opener = files.opener_if_any()?;
    let member = files.member(Some(args.client), engine(args.place.engine))?;
    let train = DigitImages::load().split(args.seed).train;
    let mut shards = train.shards(usize::from(args.clients), args.seed);
    let shard = shards.swap_remove(number);
    let mut model = Classifier::new(args.seed);
    let LocalNodes { server_node: server, client: identity, .. } =
        LocalNodes::of_folder(&args.folder);
    let (identity, node) = (read_identity(&identity)?, read_node(&server)?);
    let wires = SocketWire::bind_towards(args.server, 1, 1)?;
    let paths = PathConfig::default();
    let mut client = FederationClient::new(wires, args.server, node, args.client, identity, paths)?;
    let spool = args.folder.join(format!("client-{number}.spool"));
    for round in 0..args.rounds {
        let began = Instant::now();
        let trained =
            model.local_update(&shard, &TRAINING, training_seed(args.seed, round, number));
        let update = trained.to_update()?;
        let participation = Participation {
            member: member.clone(),
            update: &update,
            weight: shard.len() as u64,
            spool: Some(&spool),
            patience: Duration::from_secs(30),
            // For the demo's own check, which is no part of a round.
            keep_fields: true,
            opener: opener.as_ref(),
        };
        let mut result = client.contribute(&participation, |_| ControlFlow::Continue(()))?;
        let clock = Instant::now();
        let opened = result.opened.as_ref().ok_or_else(|| {
            Failure::Work("the sum was not opened, though this client opens sums".into())
        })?;
        let mean = opened.decode(&result.sum, Output::Mean)?;
        let decrypting = result.decrypting + clock.elapsed();
        model.apply(&Weights::from_update(&mean)?);
        let round_s = began.elapsed().as_secs_f64();
        // Only the demo's own check needs a record: it is no part of a round.
        record(&args.folder, args.client, round, shard.len(), (&result, opened), &mean)?;
        result.spool.take().map_or(Ok(()), Spool::remove)?;
        let report = ClientReport {
            round,
            values: result.sum.agreement.values(),
            ciphertext_bytes: result.sum.stream.len(),
            shares_bytes: result.shares_bytes,
            wire_bytes_sent: result.stats.sent.wire_bytes(),
            encrypting_s: result.encrypting.as_secs_f64(),
            exchanging_s: result.exchanging.as_secs_f64(),
            decrypting_s: decrypting.as_secs_f64(),
            round_s,
        };
        print(&serde_json::to_string(&report)?)?;
    }
    if args.waits {
        // Whoever waits for nothing else ends however it goes.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        return Ok(());
    }
    Ok(client.leave()?)
}

/// A record for the check: this client's own integers, its weight, and all that it decrypted.
#[derive(Serialize, Deserialize)]
pub(super) struct CheckRecord {
    pub(super) fields: Vec<u32>,
    pub(super) weight: u64,
    pub(super) sums: Vec<i64>,
    pub(super) parts: Vec<(usize, u64)>,
    pub(super) ranges: RangesFile,
}

/// Returns the path of a client's record of a round.
pub(super) fn record_path(folder: &Path, client: u16, round: u32, end: &str) -> std::path::PathBuf {
    folder.join(format!("client-{client}-round-{round}.{end}"))
}

fn record(
    folder: &Path,
    client: u16,
    round: u32,
    weight: usize,
    (result, opened): (&RoundResult, &OpenedSum),
    mean: &Update,
) -> Result<(), Failure> {
    let record = CheckRecord {
        fields: result.fields.as_ref().map_or_else(Vec::new, |fields| fields.to_vec()),
        weight: weight as u64,
        sums: opened.sums().to_vec(),
        parts: opened.parts().to_vec(),
        ranges: RangesFile::from_agreement(&result.sum.agreement),
    };
    let write = |end: &str, bytes: &[u8]| {
        let path = record_path(folder, client, round, end);
        fs::write(&path, bytes).map_err(at(&path))
    };
    write("safetensors", &mean.to_safetensors()?)?;
    write("json", &serde_json::to_vec(&record)?)
}

//! Jobs whose clients are all openers too.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use ciphergram_he::{
    Contribution, Error, Job, Ledger, Limits, OpenedSum, Parameters, PublicKey, Quantised,
    SealPermit, Sealer, Sum, Summing,
    params::{Literal, Scheme},
    threshold::{
        Identity, MemberKey, OpenAnswer, OpenRequest, OpenerId, OpenerKey, Openers, PrekeyChain,
        Quorum, SumSecret,
    },
};

use super::sums::{agreement, engine};

/// Clients, all of whom are openers too.
pub(crate) struct World {
    pub(crate) public: PublicKey,
    pub(crate) job: Job,
    pub(crate) identities: Vec<Arc<Identity>>,
    pub(crate) openers: Vec<OpenerKey>,
    pub(crate) ledgers: Vec<Ledger>,
    /// The openers' prekeys as they were at first.
    backup: tempfile::TempDir,
}

impl World {
    pub(crate) fn new(clients: usize, open: usize, min_clients: u16) -> Self {
        let literal =
            Literal { scheme: Scheme::CkksSumThreshold, clients: clients as u32, bits: 16 };
        let public = PublicKey::of_parameters(Parameters::new(literal).unwrap()).unwrap();
        let identities: Vec<_> =
            (0..clients).map(|_| Arc::new(Identity::generate().unwrap())).collect();
        // In memory, where there is such a folder: each answer waits for the disk.
        let memory = Path::new("/dev/shm");
        let backup = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let backup = backup.unwrap();
        let chains = (0..clients).map(|opener| {
            let path = |name: &str| backup.path().join(format!("{opener}.{name}"));
            let chain = PrekeyChain::create(&path("live")).unwrap();
            fs::copy(path("live.prekeys"), path("old.prekeys")).unwrap();
            chain
        });
        let chains: Vec<_> = chains.collect();
        let each = identities.iter().zip(&chains);
        let openers = each.map(|(identity, chain)| OpenerId {
            id: identity.id(),
            prekey: chain.prekey(identity).unwrap(),
        });
        let members = identities.iter().map(|identity| identity.id()).collect();
        let quorum = Quorum::new(clients, Some(open)).unwrap();
        let openers = Openers::new(quorum, openers.collect(), members).unwrap();
        let limits = Limits { openers: Some(Arc::new(openers)), ..Limits::of_key(&public) }
            .of_clients(clients as u16, Some(min_clients));
        let job = Job::new(&public, Limits { max_weight: u32::MAX, ..limits }).unwrap();
        // As everyone else reads it.
        let job = Job::from_json(&job.to_json().unwrap(), &public).unwrap();
        let openers = identities.iter().zip(chains).map(|(identity, chain)| {
            OpenerKey::new(&public, identity.clone(), chain, &job).unwrap()
        });
        let openers = openers.collect();
        let ledgers = (0..clients).map(|_| Ledger::in_memory()).collect();
        Self { public, job, identities, openers, ledgers, backup }
    }

    pub(crate) fn member(&self, client: usize) -> MemberKey {
        MemberKey::new(&self.public, self.identities[client].clone(), &self.job).unwrap()
    }

    /// The opener as a backup from before its first answer has it.
    pub(crate) fn restored(&self, opener: usize) -> OpenerKey {
        let path = |name: &str| self.backup.path().join(format!("{opener}.{name}"));
        fs::copy(path("old.prekeys"), path("live.prekeys")).unwrap();
        let chain = PrekeyChain::load(&path("live")).unwrap();
        OpenerKey::new(&self.public, self.identities[opener].clone(), chain, &self.job).unwrap()
    }

    fn live(&self, opener: usize) -> PathBuf {
        self.backup.path().join(format!("{opener}.live"))
    }

    /// The file of an opener's prekeys as it is now.
    pub(crate) fn chain(&self, opener: usize) -> Vec<u8> {
        fs::read(self.live(opener).with_extension("live.prekeys")).unwrap()
    }

    /// Starts an opener again with such a file.
    pub(crate) fn start_again(&mut self, opener: usize, chain: &[u8]) {
        let path = self.live(opener);
        fs::write(path.with_extension("live.prekeys"), chain).unwrap();
        let (identity, chain) =
            (self.identities[opener].clone(), PrekeyChain::load(&path).unwrap());
        self.openers[opener] = OpenerKey::new(&self.public, identity, chain, &self.job).unwrap();
    }

    pub(crate) fn contribute(&self, member: &MemberKey, round: u64, fields: &[u32]) -> Vec<u8> {
        let agreement = agreement(fields.len(), u32::MAX);
        let update = Quantised::from_fields(fields.to_vec(), 1);
        let terms = self.job.terms(round, &agreement).unwrap();
        let permit = SealPermit::draw().unwrap();
        let mut file = vec![];
        let sealer = Sealer::new(member, engine(), update, permit, &terms).unwrap();
        sealer.write_to(&mut file).unwrap();
        file
    }

    pub(crate) fn sum(&self, files: &[Vec<u8>]) -> (Sum, Vec<OpenRequest>) {
        let mut summing = Summing::new(&self.public, &self.job, engine()).unwrap();
        for file in files {
            summing.add(&Contribution::from_bytes(file, &self.public).unwrap()).unwrap();
        }
        let requests = summing.requests();
        (summing.finish().unwrap(), requests)
    }

    pub(crate) fn answer(
        &mut self,
        opener: usize,
        request: &OpenRequest,
    ) -> Result<OpenAnswer, Error> {
        let request = OpenRequest::from_bytes(&request.to_bytes(&self.public), &self.public)?;
        let answer = self.openers[opener].answer(&self.ledgers[opener], &request)?;
        OpenAnswer::from_bytes(&answer.to_bytes(&self.public), &self.public)
    }

    pub(crate) fn open(
        &self,
        client: usize,
        sum: &Sum,
        answers: &[OpenAnswer],
    ) -> Result<Vec<i64>, Error> {
        let secret = SumSecret::recover(&self.member(client), &self.job, sum, answers)?;
        Ok(OpenedSum::open(&secret, &*engine(), sum, &self.job)?.sums().to_vec())
    }
}

pub(crate) fn fields(client: u32, values: usize) -> Vec<u32> {
    (0..values as u32).map(|i| (i.wrapping_mul(2_654_435_761) ^ (client * 977)) & 0xfffe).collect()
}

pub(crate) fn expected(clients: &[u32], values: usize) -> Vec<i64> {
    let each = |i: usize| clients.iter().map(|&c| i64::from(fields(c, values)[i]) - 32767).sum();
    (0..values).map(each).collect()
}

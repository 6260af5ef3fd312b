//! Node keys: which ones a command takes.
//!
//! On loopback, and in a bundle, `serve` and `join` find theirs beside the scheme's key. Elsewhere they must be named.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use ciphergram_he::Job;
use ciphergram_nic::{
    federation::{
        ServerCandidates,
        nodes::{Allowed, LocalNodes, allowed_by, read_allowed, read_identity, read_node},
    },
    proto::{Identity, NodeId},
};

use crate::{
    args::{self, ServerName},
    failure::Failure,
};

/// The place that lists the nodes that may take part.
pub(crate) enum AllowList {
    /// In a file, for a number of clients.
    File(PathBuf, u16),
    /// In the job, for as long as it is the job.
    Job(Allowed),
}

impl AllowList {
    /// Returns the list that a server of `clients` goes by.
    ///
    /// # Errors
    /// There is none.
    fn of(args: &args::Serve, job: &Job, clients: u16) -> Result<Self, Failure> {
        match (&args.clients.allow, allowed_by(job)?) {
            (Some(path), _) => Ok(Self::File(path.clone(), clients)),
            (None, Some(nodes)) => Ok(Self::Job(nodes)),
            (None, None) => Ok(Self::File(server_nodes(args)?.allowed, clients)),
        }
    }

    /// Reads the list.
    ///
    /// # Errors
    /// It cannot be read, allows nobody, or one as a client that there is not.
    fn read(&self) -> Result<Allowed, Failure> {
        let (path, clients) = match self {
            Self::File(path, clients) => (path, *clients),
            Self::Job(nodes) => return Ok(nodes.clone()),
        };
        let allowed = read_allowed(path)?;
        let bound = allowed.iter().filter_map(|(node, client)| Some((node, (*client)?)));
        match bound.into_iter().find(|(_, client)| *client >= clients) {
            Some((node, client)) => Err(Failure::Work(format!(
                "{}: it allows node {node} as client {client}, but there are {clients} clients, numbered from 0",
                path.display()
            ))),
            None => Ok(allowed),
        }
    }

    /// Reads the list again.
    ///
    /// # Errors
    /// As [`read`](Self::read); or it is the job's.
    pub(crate) fn read_again(&self) -> Result<Allowed, Failure> {
        match self {
            Self::File(..) => self.read(),
            Self::Job(_) => {
                let text =
                    "the allow list is the job's, and only one of serve --allow FILE is read again";
                Err(Failure::Work(text.into()))
            }
        }
    }
}

fn server_nodes(args: &args::Serve) -> Result<LocalNodes, Failure> {
    local(&args.agreed.key.path, &[args.listen], "--identity FILE and --allow FILE")
}

/// Reads the aggregator's own key, and the nodes that may take part among `clients`.
pub(crate) fn server(
    args: &args::Serve,
    job: &Job,
    clients: u16,
) -> Result<(Identity, AllowList, Allowed), Failure> {
    let identity = args
        .link
        .identity
        .clone()
        .map_or_else(|| Ok(server_nodes(args)?.server), Ok::<_, Failure>)?;
    let list = AllowList::of(args, job, clients)?;
    let allowed = list.read()?;
    Ok((read_identity(&identity)?, list, allowed))
}

/// The node keys of a client.
pub(crate) struct ClientNodes {
    pub(crate) identity: Identity,
    /// The aggregator's.
    pub(crate) server: NodeId,
    /// The option or the file that it is from.
    pub(crate) server_source: String,
}

/// Finds the addresses of the aggregator that was named. Reads a client's own key, and the aggregator's.
pub(crate) fn client(
    (key, link, server_key): (&Path, &args::LinkArgs, &args::ServerKeyArg),
    name: &ServerName,
) -> Result<(ServerCandidates, ClientNodes), Failure> {
    let proxy = server_key.proxy.clone();
    let server = ServerCandidates::resolve(name.as_str(), link.transport, proxy)
        .map_err(|why| Failure::Work(format!("--server {name}: {why}")))?;
    let addresses = server.addresses();
    let options = "--identity FILE and --server-key KEY";
    let client_nodes = || local(key, addresses, options);
    let identity =
        link.identity.clone().map_or_else(|| Ok(client_nodes()?.client), Ok::<_, Failure>)?;
    let (node, server_source) = match server_key.node {
        Some(node) => (node, "--server-key".into()),
        None => {
            let path = client_nodes()?.server_node;
            (read_node(&path)?, path.display().to_string())
        }
    };
    let identity = read_identity(&identity)?;
    Ok((server, ClientNodes { identity, server: node, server_source }))
}

fn local(key: &Path, addresses: &[SocketAddr], options: &str) -> Result<LocalNodes, Failure> {
    LocalNodes::with_key(key, addresses).map_err(|address| {
        let address = address.map_or_else(|| "the aggregator".into(), |address| address.to_string());
        Failure::Misuse(format!(
            "{address} is not on this machine: say {options} (`ciphergram identity` makes node keys), or take what \
             `ciphergram bundle` makes for each machine"
        ))
    })
}

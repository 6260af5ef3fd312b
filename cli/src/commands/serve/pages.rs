//! The pages of `serve --metrics`, and what the loop of datagrams tells them. The loop waits for no
//! request: pages are written from a copy.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Instant,
};

use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use ciphergram_nic::{federation::Observation, proto::Stats};

use super::status::{Status, Terms};
use crate::{
    failure::Failure,
    responder::{OK, Page, Responder, lock},
};

/// The status page: all of it, its style and its script.
const STATUS_PAGE: &str = include_str!("status.html");

/// Numbers and a picture, and the threads that show them over HTTP.
pub(super) struct Pages {
    status: Arc<Mutex<Status>>,
    responder: Responder,
}

impl Pages {
    pub(super) fn start(address: SocketAddr, terms: Terms) -> Result<Self, Failure> {
        let status = Arc::new(Mutex::new(Status::new(terms, Instant::now())));
        let (shared, policy) = (status.clone(), content_security_policy());
        let responder = Responder::start(address, move |path| page(path, &shared, &policy))?;
        Ok(Self { status, responder })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.responder.address()
    }

    pub(super) fn follow(&self, observed: &Observation) {
        let mut status = lock(&self.status);
        if let Some((phase, span)) = status.follow(observed, Instant::now()) {
            status.metrics.spent(phase, span.as_secs_f64());
        }
    }

    /// Shows an event's line on the status page.
    pub(super) fn note(&self, line: &str) {
        lock(&self.status).note(line);
    }

    /// Takes the last numbers, once all rounds are over.
    pub(super) fn end(&self, stats: Stats) {
        lock(&self.status).end(stats);
    }

    /// Ends after the answers in progress.
    pub(super) fn finish(self) {
        self.responder.finish();
    }
}

fn page(path: &str, status: &Mutex<Status>, policy: &str) -> Option<Page> {
    let status = || lock(status).clone();
    let answer =
        |content_type, body| Page { status: OK, content_type, headers: String::new(), body };
    Some(match path {
        "/" => Page {
            headers: policy.to_owned(),
            ..answer("text/html; charset=utf-8", STATUS_PAGE.to_owned())
        },
        "/status.json" => answer("application/json", status().to_json(Instant::now()).to_string()),
        "/metrics" => {
            let status = status();
            Page::metrics(status.metrics.page(status.presence()))
        }
        "/healthz" => Page::verdict(status().health(Instant::now())),
        "/readyz" => Page::verdict(status().readiness(Instant::now())),
        _ => return None,
    })
}

/// Returns header lines by which a browser runs the page's own script and style, asks nobody but
/// this listener, and shows it in no other page.
fn content_security_policy() -> String {
    let hash = |tag: &str| {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        let inside = STATUS_PAGE.split_once(&open).and_then(|(_, rest)| rest.split_once(&close));
        let hash = digest(&SHA256, inside.map_or("", |(inside, _)| inside).as_bytes());
        BASE64_STANDARD.encode(hash)
    };
    format!(
        "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; \
         script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'\r\nReferrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\n",
        hash("script"),
        hash("style")
    )
}

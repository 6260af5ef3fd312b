//! The status page of `serve --metrics`: its answers, and in a browser where Chromium is there.

use std::{process::Command, thread, time::Duration};

use serde_json::{Value, json};

use crate::support::http::{ask, get};
use crate::support::place::{Place, Process};
use crate::support::tensors::{mixed, to_file};

/// Returns a server of two rounds for three clients, with the addresses of rounds and of pages.
fn serve() -> (Place, Process, String, String) {
    let place = Place::with_key("ckks-sum", 3);
    (0..3).for_each(|i| place.write(&format!("g{i}"), to_file(&mixed(i))));
    let (mut server, address) = place.serve("--clients 3 --rounds 2 --metrics 127.0.0.1:0");
    let pages = server.event("metrics")["address"].as_str().unwrap().to_owned();
    (place, server, address, pages)
}

fn status(pages: &str) -> Value {
    let (head, body) = get(pages, "/status.json");
    assert!(head.contains("\r\nContent-Type: application/json\r\n"), "{head}");
    serde_json::from_str(&body).unwrap()
}

fn states(status: &Value) -> [&Value; 3] {
    [0, 1, 2].map(|number| &status["clients"]["each"][number]["state"])
}

/// Waits until a status is as it should be.
fn wait_for(pages: &str, is: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..1_000 {
        let status = status(pages);
        if is(&status) {
            return status;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{}", status(pages));
}

#[test]
fn rounds_are_shown_from_start_to_end() {
    let (place, mut server, address, pages) = serve();
    let before = wait_for(&pages, |_| get(&pages, "/readyz").0.starts_with("HTTP/1.1 200 "));
    assert_eq!((&before["round"], &before["phase"]), (&Value::Null, &json!("waiting")));
    assert_eq!(get(&pages, "/healthz"), get(&pages, "/readyz"));
    assert_eq!(get(&pages, "/healthz").1, "ok\n");

    let mut clients = vec![place.join(&address, 0, ""), place.join(&address, 2, "")];
    let gathering = wait_for(&pages, |status| status["clients"]["states"]["joined"] == 2);
    assert_eq!(states(&gathering), ["joined", "missing", "joined"]);
    assert_eq!(
        (&gathering["clients"]["connected"], &gathering["clients"]["missing"]),
        (&json!(2), &json!(1))
    );
    assert!(gathering["events"][0]["text"].as_str().unwrap().contains(" joined from node "));

    clients.push(place.join(&address, 1, ""));
    let closed = server.event("closed");
    clients.into_iter().for_each(|client| drop(client.finish().done()));
    let finished = wait_for(&pages, |status| status["round"]["phase"] == "finished");
    let round = &finished["last_rounds"][0];
    assert_eq!(
        [
            &round["contributors"],
            &round["whole_contributors"],
            &round["withheld"],
            &round["chunks"]
        ],
        [&json!(3), &json!(3), &json!(0), &closed["chunks"]]
    );
    let spans =
        ["waiting_s", "summing_s", "delivering_s"].map(|name| round[name].as_f64().unwrap());
    assert!(spans.iter().all(|span| (0.0..60.0).contains(span)), "{spans:?}");
    assert_eq!(finished["round"]["settled"], closed["chunks"]);
    assert_eq!(
        (&finished["phase"], states(&finished)),
        (&json!("waiting"), [&json!("missing"); 3])
    );
    assert_eq!(finished["clients"]["missing"], 3);
    assert!(finished["traffic"]["received_bytes"].as_u64().unwrap() > 0);
    assert_eq!(get(&pages, "/readyz").1, "ok\n", "another round is to come");
}

/// No name elsewhere is in it, nothing is built of text, and a browser is told to keep to that.
#[test]
fn the_page_stands_by_itself() {
    let (_place, _server, _, pages) = serve();
    let (head, page) = get(&pages, "/");
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"),
        "{head}"
    );
    for rule in ["default-src 'none'", "script-src 'sha256-", "frame-ancestors 'none'"] {
        assert!(head.contains(rule), "{rule}: {head}");
    }
    let link = "http://www.w3.org/2000/svg";
    assert!(!page.replace(link, "").contains("//"), "an address, or a comment");
    for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "src="]
    {
        assert!(!page.contains(word), "{word}");
    }
    let head_only = ask(&pages, b"HEAD / HTTP/1.1\r\n\r\n");
    assert_eq!(head_only, format!("{head}\r\n\r\n"));
    let refused = ask(&pages, b"PUT /healthz HTTP/1.1\r\n\r\n");
    assert!(refused.contains("\r\nAllow: GET, HEAD\r\n"), "{refused}");
}

/// Returns the page as a browser builds it, once its script has asked twice; none without a browser.
fn dom(place: &Place, pages: &str) -> Option<String> {
    let profile = format!("--user-data-dir={}", place.path("chromium").display());
    let options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=1500"];
    let url = format!("http://{pages}/");
    let command = ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(|name| {
        Command::new(name).args(options).args([&profile, "--dump-dom", &url]).output().ok()
    });
    let ran = command?;
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let violation = "Content Security Policy";
    assert!(!String::from_utf8_lossy(&ran.stderr).contains(violation));
    Some(String::from_utf8(ran.stdout).unwrap())
}

/// Returns the text inside the element of an id, without its tags.
fn text(dom: &str, id: &str) -> String {
    let (_, rest) =
        dom.split_once(&format!(" id=\"{id}\"")).unwrap_or_else(|| panic!("{id}: {dom}"));
    let inside = rest.split_once('>').unwrap().1;
    let end = ["</p>", "</ul>", "</h2>", "</tbody>", "</ol>", "</b>", "</dl>"]
        .iter()
        .filter_map(|end| inside.find(end))
        .min();
    let mut tag = false;
    let kept = inside[..end.unwrap()].chars().filter(|c| {
        let out = !tag && *c != '<';
        tag = (tag || *c == '<') && *c != '>';
        out
    });
    kept.collect()
}

#[test]
fn a_browser_shows_clients_chunks_and_rounds() {
    let (place, mut server, address, pages) = serve();
    let mut clients = vec![place.join(&address, 0, ""), place.join(&address, 2, "")];
    wait_for(&pages, |status| status["clients"]["states"]["joined"] == 2);
    let Some(gathering) = dom(&place, &pages) else {
        println!("SKIPPED, there is no Chromium");
        return;
    };
    assert_eq!(text(&gathering, "figure"), "2 of 3clients joined");
    assert_eq!(text(&gathering, "connected"), "2 connected, 1 missing");
    for (number, state) in [(0, "joined"), (1, "missing"), (2, "joined")] {
        let tile = format!("aria-label=\"client {number}: {state}\"");
        assert!(gathering.contains(&tile), "{tile}: {gathering}");
    }
    assert!(text(&gathering, "link").starts_with("live, up "), "{}", text(&gathering, "link"));

    clients.push(place.join(&address, 1, ""));
    let chunks = server.event("closed")["chunks"].as_u64().unwrap();
    clients.into_iter().for_each(|client| drop(client.finish().done()));
    wait_for(&pages, |status| status["round"]["phase"] == "finished");
    let finished = dom(&place, &pages).unwrap();
    assert!(finished.contains(&format!("aria-valuenow=\"{chunks}\"")), "{finished}");
    let row = text(&finished, "rounds");
    assert!(row.trim().starts_with(&format!("03{chunks}0")), "{row}");
    let cells = finished.matches("<i class=\"\" style=\"--share: 1;\">").count();
    assert_eq!(cells as u64, chunks.div_ceil(chunks.div_ceil(240)), "every chunk is settled");
    assert!(text(&finished, "events").contains("round 0 finished: its sums are delivered"));
    assert!(!text(&finished, "received-rate").contains('–'));
}

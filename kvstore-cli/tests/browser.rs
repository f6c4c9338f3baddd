//! The status page in a real browser, headless Chromium.

#![cfg(unix)]
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod process;

use std::process::{Command, Stdio};

use kvstore::{NetStore, NetStoreOptions, backends};
use kvstore_core::{Device, Key, KvStore, Tensor};

use self::process::{LONG, Process};

/// The name of a member, which would be HTML if the page did not convert it.
const NAME: &str = "<script>document.title='broken'</script>";

/// Returns the page after its scripts have run for this many seconds of the browser's clock.
fn page(browser: &str, url: &str, seconds: u32) -> String {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(browser);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-sync"])
        .args(["--disable-component-update", "--disable-quic", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--virtual-time-budget={}", seconds * 1000))
        .arg(url);
    let output = command.stderr(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the contents of the element with an id.
#[track_caller]
fn element<'a>(page: &'a str, id: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("id=\"{id}\"")).expect(id);
    let (_, rest) = rest.split_once('>').unwrap();
    let end = ["</tbody>", "</dl>", "</small>"].iter().filter_map(|end| rest.find(end)).min();
    &rest[..end.unwrap()]
}

#[test]
fn the_status_page_shows_members_keys_and_throughput() {
    let installed = ["chromium", "chromium-browser", "google-chrome"].into_iter();
    let mut working = installed.filter(|name| {
        let version = Command::new(name).arg("--version").stdout(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    });
    let Some(browser) = working.next() else {
        println!("skipped: Chromium is not installed");
        return;
    };
    let (mut server, address) =
        Process::serve(&["--address", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--status-page"]);
    let url = format!("http://{}/", server.rest_of_line("metrics on "));
    let options = NetStoreOptions::new(&address).timeout(LONG).name(NAME);
    let store = NetStore::connect(backends(), &options).unwrap();
    let ones = Tensor::from_slice(backends(), Device::cpu(0), [4, 2], &[1f32; 8]).unwrap();
    let key = Key::new("layer/<b>weight</b>").unwrap();
    store.init(std::slice::from_ref(&key), &[ones.clone().into()]).unwrap();
    for _ in 0..5 {
        store.push(std::slice::from_ref(&key), &[ones.clone().into()], 0).unwrap();
    }
    let shown = page(browser, &url, 5);
    assert!(shown.contains("<title>kvstore</title>"), "{shown}");
    assert_eq!(element(&shown, "state"), "serving");
    assert_eq!(
        element(&shown, "members"),
        "<tr><td>&lt;script&gt;document.title='broken'&lt;/script&gt;</td><td>worker</td>\
         <td>0</td></tr>"
    );
    assert_eq!(
        element(&shown, "keys"),
        "<tr><td>layer/&lt;b&gt;weight&lt;/b&gt;</td><td>float32</td><td>(4, 2)</td>\
         <td>32 B</td><td>0 B</td><td>5</td></tr>"
    );
    for number in ["<dt>workers</dt><dd>1</dd>", "<dt>pushes</dt><dd>5</dd>"] {
        assert!(element(&shown, "numbers").contains(number), "{shown}");
    }
    // The page has refreshed, so the chart has several points.
    let (_, points) = shown.split_once("<polyline points=\"").unwrap();
    let (points, _) = points.split_once('"').unwrap();
    assert!(points.split(' ').count() >= 2, "{points}");
    drop(store);
    let shown = page(browser, &url, 1);
    assert_eq!(element(&shown, "members"), "");
}

//! The dashboard: hand-written files inside the binary. They contain no data, so every client may get them; the pages read
//! their data from the admin API, which authenticates the client. `auth.rs` adds the security headers.
//!
//! The address of a file contains a hash of all files: its content never changes, so browsers may keep it for ever.

use crate::decide::id::Digest;
use axum::Router;
use axum::extract::{Path, Request};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::fmt::Write as _;
use std::sync::LazyLock;

/// The pages that the script renders; all have the same document.
const PAGES: [&str; 9] = [
    "/",
    "/events",
    "/events/{event}",
    "/dead",
    "/turned-away",
    "/registers",
    "/registers/{register}",
    "/sources",
    "/explain",
];
/// The page that is part of the API's description, because programs log in there, too.
const LOGIN: &str = "/login";

const HTML: &str = "text/html; charset=utf-8";
const INDEX: &str = include_str!("dashboard/index.html");

macro_rules! files {
    ($($path:literal)*) => { [$(($path, include_str!(concat!("dashboard/", $path)))),*] };
}

/// The files of the dashboard.
const FILES: [(&str, &str); 27] = files![
    "style.css" "favicon.svg" "favicon-trouble.svg" "theme-first.js"
    "app.js" "dom.js" "api.js" "live.js" "time.js" "words.js" "charts.js" "ansi.js" "json.js" "dialog.js" "keys.js"
    "theme.js"
    "views/overview.js" "views/events.js" "views/event.js" "views/rows.js" "views/dead.js" "views/away.js"
    "views/heard.js" "views/registers.js" "views/sources.js" "views/explain.js" "views/login.js"
];

/// The document, and the hash in the addresses of its files.
struct DashboardPage {
    hash: String,
    text: String,
}

static DOCUMENT: LazyLock<DashboardPage> = LazyLock::new(|| {
    let all = FILES.iter().fold(INDEX.to_owned(), |all, (path, text)| all + "\0" + path + "\0" + text);
    let hash = hex::encode(&Digest::of(all.as_bytes()).0[..8]);
    let assets = format!("/assets/{hash}");
    let mut modules = String::new();
    for (path, _) in FILES.iter().filter(|(path, _)| is_script(path) && *path != "theme-first.js") {
        // Writing to a string cannot fail.
        let _ = writeln!(modules, "<link rel=\"modulepreload\" href=\"{assets}/{path}\">");
    }
    let text = INDEX.replace("{assets}", &assets).replace("{modules}\n", &modules);
    DashboardPage { hash, text }
});

/// The routes of the pages and their files.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let files = Router::new().route("/assets/{hash}/{*path}", get(file));
    PAGES.iter().fold(files, |router, page| router.route(page, get(document)))
}

/// Whether the client wants a page for a browser.
pub(super) fn is_asked_for(headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    accepts.contains("text/html")
}

/// The document for a browser that requests a page that does not exist; it says so. `None` for a program. A trailing
/// slash after a page's address redirects to the page.
pub(super) fn nowhere(request: &Request) -> Option<Response> {
    let path = request.uri().path();
    let programs = path == "/api" || path.starts_with("/api/") || path.starts_with("/assets/");
    if programs || request.method() != Method::GET || !is_asked_for(request.headers()) {
        return None;
    }
    if let Some(page) = PAGES.iter().chain([&LOGIN]).find(|page| page.len() > 1 && **page == path.trim_end_matches('/'))
    {
        let to = request.uri().query().map_or_else(|| (*page).to_owned(), |query| format!("{page}?{query}"));
        return Some((StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, to)]).into_response());
    }
    let mut response = kind(HTML, DOCUMENT.text.as_str().into_response());
    *response.status_mut() = StatusCode::NOT_FOUND;
    Some(response)
}

/// The login form.
#[utoipa::path(
    get,
    path = "/login",
    operation_id = "loginPage",
    responses((status = 200, description = "The dashboard's page, the same for every client.", body = String,
               content_type = "text/html"))
)]
pub(super) async fn login_page(headers: HeaderMap) -> Response {
    document(headers).await
}

async fn document(headers: HeaderMap) -> Response {
    let tag = format!("\"{}\"", DOCUMENT.hash);
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        kind(HTML, DOCUMENT.text.as_str().into_response())
    };
    let tag = HeaderValue::from_str(&tag).expect("a hash is ASCII");
    response.headers_mut().insert(header::ETAG, tag);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

async fn file(Path((hash, path)): Path<(String, String)>) -> Response {
    let found = FILES.iter().find(|(name, _)| *name == path).filter(|_| hash == DOCUMENT.hash);
    let Some((name, text)) = found else {
        return (StatusCode::NOT_FOUND, "there is no such file; reload the page\n").into_response();
    };
    let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
    let mut response = kind(content_type(name), text.into_response());
    response.headers_mut().insert(header::CACHE_CONTROL, kept);
    response
}

fn is_script(path: &str) -> bool {
    path.rsplit('.').next() == Some("js")
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

fn kind(of: &'static str, mut response: Response) -> Response {
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(of));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_is_referenced_is_embedded_and_every_embedded_file_is_referenced() {
        let named = |path: &str| INDEX.contains(&format!("{{assets}}/{path}"));
        for (path, _) in FILES {
            let name = path.rsplit('/').next().expect("a last part");
            let imported = FILES.iter().any(|(_, text)| text.contains(&format!("/{name}\"")));
            assert!(named(path) || imported, "{path} is not used");
        }
        for (path, text) in FILES.iter().filter(|(path, _)| is_script(path)) {
            for rest in text.split("\nimport ").skip(1) {
                let from = rest.split('"').nth(1).expect("an import says from where");
                let here = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                let wanted = match from.strip_prefix("../") {
                    Some(up) => up.to_owned(),
                    None => format!("{here}/{}", from.trim_start_matches("./")).trim_start_matches('/').to_owned(),
                };
                assert!(FILES.iter().any(|(path, _)| *path == wanted), "{path} imports {wanted}");
            }
        }
    }

    #[test]
    fn no_file_parses_text_as_markup_or_code_or_refers_to_another_origin() {
        let strange = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "javascript:",
            "style=\"",
            "srcdoc",
            "https://",
        ];
        for (path, text) in FILES.into_iter().chain([("index.html", INDEX)]) {
            for word in strange {
                assert!(!text.contains(word), "{path} has `{word}`");
            }
            let elsewhere = text.replace("http://www.w3.org/2000/svg", "").contains("http://");
            assert!(!elsewhere, "{path} refers to another origin");
        }
    }
}

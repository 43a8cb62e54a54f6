//! Measurable parts of the layout: contrast in both themes, and no page wider than a phone.

use crate::browser::Browser;
use crate::support::{House, Sent};
use crate::{DEPLOY, ORDER, config, deploy, order, short, visit};
use serde_json::json;

/// Every text on the page with too little contrast to its background (WCAG 2, AA).
const TOO_FAINT: &str = r"(() => {
  const colour = (text) => {
    const n = text.match(/[\d.]+(e-?\d+)?/g).map(Number);
    return text.startsWith('color(srgb') ? [n[0] * 255, n[1] * 255, n[2] * 255, n[3] ?? 1] : [n[0], n[1], n[2], n[3] ?? 1];
  };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
  const light = (c) => {
    const [r, g, b] = c.slice(0, 3).map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    const layers = [];
    for (; e; e = e.parentElement) layers.push(colour(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255, 1]);
  };
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    const said = walker.currentNode.textContent.trim();
    if (!said || !e.checkVisibility() || e.closest('option, noscript, .offscreen')) continue;
    const style = getComputedStyle(e);
    const ground = behind(e);
    let ink = colour(e instanceof SVGElement ? style.fill : style.color);
    ink[3] *= Number(style.opacity);
    ink = over(ink, ground);
    const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const wanted = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    if (ratio < wanted) bad.push(`${said.slice(0, 40)} (${e.className?.baseVal ?? e.className}): ${ratio.toFixed(2)}`);
  }
  return [...new Set(bad)];
})()";

/// A node with events of all kinds, and pages to check, each with a text that it shows.
async fn furnished() -> (House, Vec<(String, String)>) {
    let step = "printf '\\033[31mred \\033[32mgreen \\033[33myellow \\033[34mblue \\033[35mmagenta \\033[36mcyan \\033[90mgrey \\033[7minverse\\033[0m \\033[2mdim\\033[0m\\n'; test $HOOKONCE_FIELD_APP != broken";
    let house = House::new(&config(step));
    let long = "x".repeat(300);
    let event = house.deliver(DEPLOY, &deploy("d-1", "broken", "latest", 1)).await.event();
    house.deliver(DEPLOY, &deploy("d-2", "shop", "latest", 2)).await;
    house.deliver(DEPLOY, &deploy("d-3", "shop", "latest", 2)).await;
    house.deliver(DEPLOY, &deploy("d-4", "shop", "nightly", 2)).await;
    house.deliver(ORDER, &order(&format!("o-{long}"), &long, "ada")).await;
    house.deliver(ORDER, &Sent::github("push", "o-2", "{}").with("x-hub-signature-256", "sha256=00")).await;
    house.quiet().await;
    let pages = [
        ("/".to_owned(), "Recent activity".to_owned()),
        ("/events".into(), short(&event).into()),
        ("/events?text=-".into(), "without an event".into()),
        (format!("/events/{event}"), "inverse".into()),
        ("/dead".into(), short(&event).into()),
        ("/turned-away".into(), "bad signature".into()),
        ("/registers".into(), "2 registers".into()),
        (format!("/registers/{event}"), "Events of this subject".into()),
        ("/sources".into(), house.url(DEPLOY)),
        (format!("/explain?event={event}"), "Identities".into()),
    ];
    (house, pages.into())
}

async fn check_contrast(page: &Browser, house: &House, pages: &[(String, String)], theme: &str) {
    for (path, text) in pages {
        page.open(&house.admin_url(path)).await;
        page.says(text).await;
        assert_eq!(page.value(TOO_FAINT).await, json!([]), "{theme} {path}");
    }
    page.press(&['?']).await;
    page.shows("dialog[open]", "Keys").await;
    assert_eq!(page.value(TOO_FAINT).await, json!([]), "{theme} dialog");
}

#[tokio::test]
async fn every_text_can_be_read_in_both_themes() {
    let (house, pages) = furnished().await;
    let page = visit(&house, "/").await;
    let ground = "getComputedStyle(document.body).backgroundColor";
    page.system_theme("light").await;
    let light = page.value(ground).await;
    check_contrast(&page, &house, &pages, "light").await;
    page.system_theme("dark").await;
    assert_ne!(page.value(ground).await, light, "the page follows the system's theme");
    check_contrast(&page, &house, &pages, "dark").await;

    // The switch overrides the system, and is remembered.
    page.open(&house.admin_url("/")).await;
    page.click("#theme").await;
    page.shows("#theme", "light").await;
    assert_eq!(page.value(ground).await, light);
    page.open(&house.admin_url("/events")).await;
    page.shows("#theme", "light").await;
    assert_eq!(page.value(ground).await, light);
    page.click("#theme").await;
    page.shows("#theme", "dark").await;
    page.system_theme("light").await;
    assert_ne!(page.value(ground).await, light);
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn no_page_is_wider_than_a_phone_and_its_navigation_folds() {
    let (house, pages) = furnished().await;
    let page = visit(&house, "/").await;
    for width in [360, 390, 768, 840, 1024, 1100] {
        page.size(width, 800).await;
        for (path, text) in &pages {
            page.open(&house.admin_url(path)).await;
            page.says(text).await;
            let over = "[...document.querySelectorAll('#page *')].filter((e) => e.checkVisibility() && !e.closest('pre, .body-view, svg, td .fields, .scroll') && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 120))";
            assert_eq!(page.value(over).await, json!([]), "{width} {path}");
            let wide = page.value("[document.documentElement.scrollWidth, innerWidth]").await;
            assert!(wide[0].as_u64() <= wide[1].as_u64(), "{width} {path}: {wide}");
        }
    }
    page.size(360, 800).await;
    page.open(&house.admin_url("/")).await;
    page.shows("#live", "Live").await;
    page.lacks(".nav a").await;
    page.click(".menu").await;
    page.shows(".nav a", "Events").await;
    page.click(".nav a[href='/events']").await;
    page.until("location.pathname === '/events'").await;
    page.lacks(".nav a").await;
    page.close(&house.admin_url("/")).await;
}

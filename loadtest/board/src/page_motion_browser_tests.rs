//! The page in a browser that asks for reduced motion, and in one that does not.

use super::*;

/// Counts the pictures of the left lane, before the page draws any.
const COUNT_PICTURES: &str = "window.pictures = 0; \
    const { clearRect } = CanvasRenderingContext2D.prototype; \
    CanvasRenderingContext2D.prototype.clearRect = function clear(...area) { \
      if (this.canvas.closest('#lane-left')) window.pictures += 1; \
      clearRect.apply(this, area); }";
/// What the page shows, without its address: each lane with its pixels, and the time.
const ALL_SHOWN: &str = "const text = (it) => document.querySelector(it).innerText; \
    return [text('#lane-left'), text('#lane-right'), text('#clock'), text('#state'), \
      document.getElementById('ticks').innerHTML, \
      ...[...document.querySelectorAll('#lanes canvas')].map((it) => it.toDataURL())]";
/// Plays the race from its begin.
const PLAY: &str = "const it = document.getElementById('scrubber'); it.value = '0'; \
    it.dispatchEvent(new Event('input')); \
    document.getElementById('clock').textContent = ''; \
    document.getElementById('play').click(); \
    [window.pictures, window.began] = [0, performance.now()]";
/// The pictures since then, and the most that are drawn in that time at two a second.
const COUNTED: &str =
    "return [window.pictures, Math.ceil((performance.now() - window.began) / 500) + 1]";

/// Plays a race of 3 s and shows its verdict: how many pictures that took, how many two a second
/// are, and what is shown at the end.
async fn played(motion: &str) -> ([u64; 2], Vec<String>) {
    let browser = Browser::start().await;
    let preference = json!({"features": [{"name": "prefers-reduced-motion", "value": motion}]});
    browser.devtools("Emulation.setEmulatedMedia", preference).await;
    let source = json!({"source": COUNT_PICTURES});
    browser.devtools("Page.addScriptToEvaluateOnNewDocument", source).await;
    let board = TestBoard::start().await;
    browser.open(&board.state.url()).await;
    let mut page = OpenPage { board, browser };
    let _race = page.begin().await;
    page.push(&[json!(["s", 2, 0, "running", ""]), json!(["l", 0, 0, "free"])]);
    page.push(&purchases());
    page.push(&[
        json!(["l", 0, 110_000, 900, 1]),
        json!(["m", 0, 400_000, "restart r2", "begin", ""]),
        json!(["m", 0, 500_000, "restart r2", "healed", ""]),
        json!(["i", 0, 600_000, 3, 2]),
        json!(["u", 0, 3_000_000, 3, "r2", null, 700_000, 2_900_000, 1_700_000, 5000]),
    ]);
    page.shows("Number(document.getElementById('scrubber').max) === 3000").await;
    page.browser.run(PLAY).await;
    let animations = "return document.getAnimations().length";
    let clock = "document.getElementById('clock').textContent.startsWith('3.000 s')";
    while page.browser.run(&format!("return {clock}")).await != json!(true) {
        assert_eq!(page.browser.run(animations).await, 0, "something moves by itself");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let counted = page.browser.run(COUNTED).await;
    let counted = [0, 1].map(|at| counted[at].as_u64().expect("a number"));
    page.end([verdict(2, 1, "local_user"), verdict(1, 0, "user")]).await;
    page.shows("document.querySelectorAll('#lane-left .log li').length === 4").await;
    page.browser.run(NEXT_PICTURE).await;
    let shown = page.browser.run(ALL_SHOWN).await;
    (counted, serde_json::from_value(shown).expect("texts"))
}

#[tokio::test(flavor = "multi_thread")]
async fn with_reduced_motion_nothing_moves_and_all_is_shown_as_without() {
    let ([calm, most], shown_calmly) = played("reduce").await;
    assert!(calm <= most, "{calm} pictures, not {most}");
    let ([moving, most], shown) = played("no-preference").await;
    assert!(moving > most, "{moving} pictures with motion are no more than {most}");
    for (part, other) in shown.iter().zip(&shown_calmly) {
        assert!(part == other, "{part:.2000} and not {other:.2000}");
    }
}

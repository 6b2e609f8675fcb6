//! A tab with the page: what it shows, keys that are pressed in it, and what must never have happened in it.

use super::chromium::Chromium;
use crate::served::ServedPage;
use base64::Engine;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Noted in each document before any of its scripts runs.
const WATCH: &str = "globalThis.violations = [];
  addEventListener('securitypolicyviolation', (event) => violations.push(event.violatedDirective + ' ' + event.blockedURI), true);
  globalThis.ran = [];
  globalThis.alert = (text) => ran.push(text);";

/// A tab that shows the page.
pub(crate) struct Tab<'a> {
    browser: &'a mut Chromium,
    session: String,
    origin: String,
}

impl<'a> Tab<'a> {
    /// A tab with the page at a view, in a browser profile of its own.
    pub(crate) fn open(browser: &'a mut Chromium, page: &ServedPage, hash: &str) -> Self {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let context = browser.call(None, "Target.createBrowserContext", json!({}));
        let target = json!({"url": "about:blank", "browserContextId": context["browserContextId"]});
        let target = browser.call(None, "Target.createTarget", target);
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call(None, "Target.attachToTarget", attach);
        let mut tab = Tab {
            session: text(&attached["sessionId"]),
            origin: format!("http://{}", page.address),
            browser,
        };
        for domain in ["Page", "Runtime", "Network", "Log"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab.call(
            "Page.addScriptToEvaluateOnNewDocument",
            json!({"source": WATCH}),
        );
        tab.resize(1_180, 760);
        tab.scheme("light");
        let url = format!("{}/{hash}", tab.origin);
        tab.call("Page.navigate", json!({"url": url}));
        tab
    }

    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        let session = self.session.clone();
        self.browser.call(Some(&session), method, parameters)
    }

    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Light or dark.
    pub(crate) fn scheme(&mut self, scheme: &str) {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.call("Emulation.setEmulatedMedia", json!({"features": [feature]}));
    }

    /// The value of an expression, awaited.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let result = self.call("Runtime.evaluate", parameters);
        let failed = &result["exceptionDetails"];
        assert!(failed.is_null(), "{expression}: {failed}");
        result["result"]["value"].clone()
    }

    /// The value of an expression, unless the tab goes elsewhere meanwhile.
    fn try_value(&mut self, expression: &str) -> Option<Value> {
        let parameters =
            json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let session = self.session.clone();
        let result = self
            .browser
            .try_call(Some(&session), "Runtime.evaluate", parameters);
        let result = result.ok()?;
        let is_value = result["exceptionDetails"].is_null();
        is_value.then(|| result["result"]["value"].clone())
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&mut self, expression: &str) {
        let wait = format!(
            "new Promise((resolve) => {{
               const end = performance.now() + 8000;
               const look = () => {{
                 let value = false;
                 try {{ value = Boolean({expression}); }} catch {{ }}
                 if (value || performance.now() > end) resolve(value); else setTimeout(look, 15);
               }};
               look();
             }})"
        );
        let start = Instant::now();
        let mut value = self.try_value(&wait);
        // Going elsewhere ends what is evaluated: it is begun again there.
        while value.is_none() && start.elapsed() < Duration::from_secs(8) {
            value = self.try_value(&wait);
        }
        if value != Some(json!(true)) {
            let text = self.value("document.body.innerText");
            panic!(
                "not in time: {expression}\n{}",
                text.as_str().unwrap_or_default()
            );
        }
    }

    /// Goes to a view and waits until it is shown.
    pub(crate) fn go(&mut self, hash: &str) {
        self.value(&format!(
            "if (location.hash !== {0}) {{ main.dataset.ready = 'false'; location.hash = {0}; }}",
            json!(hash)
        ));
        self.wait("main.dataset.ready === 'true'");
    }

    /// The texts of the elements that a selector finds, as they are shown.
    pub(crate) fn texts(&mut self, selector: &str) -> Vec<String> {
        let expression = format!(
            "[...document.querySelectorAll({})].filter((node) => !node.closest('[hidden]')).map((node) => node.textContent)",
            json!(selector)
        );
        serde_json::from_value(self.value(&expression)).unwrap()
    }

    /// The texts of the cells of a table's rows that are shown.
    pub(crate) fn rows(&mut self, table: &str) -> Vec<Vec<String>> {
        let expression = format!(
            "[...document.querySelectorAll({})].filter((row) => !row.hidden).map((row) => [...row.cells].map((cell) => cell.textContent))",
            json!(format!("{table} tbody tr"))
        );
        serde_json::from_value(self.value(&expression)).unwrap()
    }

    /// Presses a key, as a person does.
    pub(crate) fn press(&mut self, key: &str) {
        let (code, number, text) = match key {
            "Tab" => ("Tab", 9, ""),
            "Enter" => ("Enter", 13, "\r"),
            "Escape" => ("Escape", 27, ""),
            "ArrowRight" => (key, 39, ""),
            "ArrowLeft" => (key, 37, ""),
            "ArrowDown" => (key, 40, ""),
            "ArrowUp" => (key, 38, ""),
            other => (
                "",
                u32::from(other.as_bytes()[0].to_ascii_uppercase()),
                other,
            ),
        };
        let event = |kind: &str| {
            json!({"type": kind, "key": key, "code": code, "text": text,
                "windowsVirtualKeyCode": number})
        };
        let down = if text.is_empty() {
            "rawKeyDown"
        } else {
            "keyDown"
        };
        self.call("Input.dispatchKeyEvent", event(down));
        let mut up = event("keyUp");
        up["text"] = json!("");
        self.call("Input.dispatchKeyEvent", up);
    }

    /// Types a text.
    pub(crate) fn insert(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// What has the focus: its text, or the name of its field.
    pub(crate) fn focus(&mut self) -> String {
        let expression = "(() => { const node = document.activeElement; return node.name || node.getAttribute('aria-label') || node.id || node.textContent; })()";
        self.value(expression).as_str().unwrap().to_owned()
    }

    /// A picture of what is shown, as PNG.
    pub(crate) fn picture(&mut self) -> Vec<u8> {
        let parameters = json!({"format": "png", "optimizeForSpeed": false});
        let picture = self.call("Page.captureScreenshot", parameters);
        let data = picture["data"].as_str().unwrap();
        base64::engine::general_purpose::STANDARD
            .decode(data)
            .unwrap()
    }

    /// Checks what must never happen: a script of a name ran, something was fetched from elsewhere, the policy was
    /// violated, an error was not caught. Returns the number of requests.
    pub(crate) fn end(mut self) -> usize {
        self.value("new Promise((resolve) => setTimeout(resolve, 50))");
        let ran = self.value("globalThis.ran");
        assert_eq!(ran, json!([]), "scripts of names ran");
        let violations = self.value("globalThis.violations");
        assert_eq!(violations, json!([]), "violations of the policy");
        let images =
            self.value("document.querySelectorAll('main img, main script, main iframe').length");
        assert_eq!(images, 0, "markup of names");
        let (session, origin) = (self.session.clone(), self.origin.clone());
        let mut requests = 0;
        for event in self
            .browser
            .events()
            .filter(|event| event["sessionId"] == *session)
        {
            let parameters = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Network.requestWillBeSent" => {
                    let url = parameters["request"]["url"].as_str().unwrap();
                    assert!(url.starts_with(&origin), "a request elsewhere: {url}");
                    requests += 1;
                }
                "Page.javascriptDialogOpening" => panic!("a dialog: {parameters}"),
                "Runtime.exceptionThrown" => panic!("not caught: {parameters}"),
                "Log.entryAdded" => {
                    let source = parameters["entry"]["source"].as_str().unwrap_or_default();
                    assert!(
                        source != "security" && source != "violation",
                        "{parameters}"
                    );
                }
                _ => {}
            }
        }
        requests
    }
}

"""A real browser that looks at a report: Chromium, without a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait
from zkms_spark.analysis import Analysis
from zkms_spark.report.report import render

PATIENCE = 90


@contextmanager
def browse(analysis: Analysis, directory: Path) -> Iterator[Chrome]:
    """The report of this analysis, opened from its file."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        reason = "no Chromium: apt-get install chromium chromium-driver"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    page = directory / "report.html"
    page.write_text(render(analysis), encoding="utf-8")
    options = Options()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--incognito"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = Chrome(options=options, service=Service(driver))
    try:
        browser.set_page_load_timeout(PATIENCE)
        browser.execute_cdp_cmd("Network.enable", {})
        browser.execute_cdp_cmd(
            "Network.emulateNetworkConditions",
            {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
        )
        browser.get(page.as_uri())
        yield browser
    finally:
        browser.quit()


def check_page(browser: Chrome, evil: str, analysis: Analysis) -> None:
    """What a reader sees, and what must not happen."""
    wait = WebDriverWait(browser, PATIENCE)
    drawn = "return [...document.querySelectorAll('.plot')].every(p => p.querySelector('svg.main-svg'))"
    wait.until(lambda b: b.execute_script(drawn))
    assert len(browser.find_elements(By.CSS_SELECTOR, ".plot")) == 4
    assert "broken" in browser.find_element(By.CSS_SELECTOR, ".banner").text
    assert len(browser.find_elements(By.CSS_SELECTOR, ".guarantees li")) == 7
    assert len(browser.find_elements(By.CSS_SELECTOR, "#table-findings tbody tr")) == len(analysis.findings)
    assert evil in browser.find_element(By.ID, "table-topics").text
    assert browser.title.startswith("zkms report")
    assert browser.find_elements(By.CSS_SELECTOR, "main img") == []
    links = "return [...document.querySelectorAll('.guarantees a')].map(a => a.getAttribute('href'))"
    for link in browser.execute_script(links):
        assert browser.find_elements(By.CSS_SELECTOR, link), link
    light = _background(browser)
    _media(browser, "dark")
    wait.until(lambda b: _background(b) != light)
    for width in (390, 1280):
        size: dict[str, Any] = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        wait.until(lambda b, width=width: b.execute_script("return window.innerWidth") == width)
        assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    severe = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert severe == []


def _media(browser: Chrome, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def _background(browser: Chrome) -> str:
    return str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))

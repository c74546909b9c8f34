import { Store } from "./store.js";

/** The time, in steps of a second while the page is visible. */
export const now = new Store(Date.now());

if (typeof document !== "undefined") {
  setInterval(() => {
    if (!document.hidden) now.set(Date.now());
  }, 1000);
}

/** The tab is visible. Hidden tabs close most streams: without TLS a browser has six connections to a server. */
export const tabVisible = new Store(true);

if (typeof document !== "undefined") {
  const read = () => tabVisible.set(!document.hidden);
  read();
  document.addEventListener("visibilitychange", read);
}

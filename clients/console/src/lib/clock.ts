import { Store } from "./store.js";

/** The time, in steps of a second while the page is visible. */
export const now = new Store(Date.now());

if (typeof document !== "undefined") {
  setInterval(() => {
    if (!document.hidden) now.set(Date.now());
  }, 1000);
}

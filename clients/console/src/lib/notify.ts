import type { Callback } from "@copilot-grpc/client";
import { questionOf } from "./callbacks.js";
import { type Inbox, keyOf } from "./inbox.js";
import { sessionPath } from "./router.js";
import { Store } from "./store.js";
import { firstLine, visible } from "./text.js";

const key = "notify";

/** The user wants notifications in this browser, and the browser permits them. */
export const notifies = new Store(false);

export const canNotify = typeof Notification !== "undefined";

export function loadNotify(): void {
  notifies.set(canNotify && localStorage.getItem(key) === "on" && Notification.permission === "granted");
}

/** Switches notifications on, after the browser has asked the user, or off. */
export async function switchNotify(on: boolean): Promise<void> {
  const granted = on && canNotify && (await Notification.requestPermission()) === "granted";
  localStorage.setItem(key, granted ? "on" : "off");
  notifies.set(granted);
}

/** The requests of `now` that were not in `before`: those to notify about. Nothing before the inbox is complete. */
export function newRequests(before: Inbox, now: Inbox): Callback[] {
  if (!before.complete) return [];
  return [...now.waiting.values()].filter(
    ({ sessionId, callbackId }) => !before.waiting.has(keyOf(sessionId, callbackId)),
  );
}

/** Shows notifications for new requests while the tab is hidden. Returns the function that ends this. */
export function notifyAbout(
  inbox: { subscribe(run: (value: Inbox) => void): () => void },
  navigate: (path: string) => void,
): () => void {
  let before: Inbox | undefined;
  return inbox.subscribe((now) => {
    const fresh = before ? newRequests(before, now) : [];
    before = now;
    if (!notifies.get() || !document.hidden) return;
    for (const callback of fresh.slice(0, 3)) {
      const { title, subject } = questionOf(callback);
      // The tag makes the notifications of several tabs one.
      const shown = new Notification(visible(title), {
        body: visible(firstLine(subject)),
        tag: keyOf(callback.sessionId, callback.callbackId),
        icon: "/icon.svg",
      });
      shown.onclick = () => {
        window.focus();
        navigate(sessionPath(callback.sessionId));
        shown.close();
      };
    }
  });
}

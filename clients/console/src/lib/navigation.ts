import { parseRoute, type Route } from "./router.js";
import { Store } from "./store.js";

/** The page in the address bar. */
export const route = new Store<Route>({ page: "fleet" });

/** Follows the address bar, and opens the console's own links without loading the page again. */
export function follow(): void {
  const read = () => route.set(parseRoute(location.pathname));
  read();
  addEventListener("popstate", read);
  document.addEventListener("click", (event) => {
    const path = ownLink(event);
    if (path === undefined) return;
    event.preventDefault();
    navigate(path);
  });
}

/** Opens a path of the console. */
export function navigate(path: string, options: { replace?: boolean } = {}): void {
  if (options.replace) history.replaceState(null, "", path);
  else if (path !== location.pathname + location.search) history.pushState(null, "", path);
  route.set(parseRoute(location.pathname));
}

/** The path of a click on a link of the console that is meant for this tab. */
function ownLink(event: MouseEvent): string | undefined {
  if (event.defaultPrevented || event.button !== 0) return undefined;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return undefined;
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return undefined;
  if (!link.getAttribute("href")?.startsWith("/")) return undefined;
  return link.pathname + link.search;
}

/** A page of the console. */
export type Route =
  | { readonly page: "fleet" }
  | { readonly page: "inbox" }
  | { readonly page: "usage" }
  | { readonly page: "runtimes" }
  | { readonly page: "login" }
  | { readonly page: "session"; readonly id: string }
  | { readonly page: "timeline"; readonly id: string }
  | { readonly page: "missing"; readonly path: string };

const pages = { "/": "fleet", "/inbox": "inbox", "/usage": "usage", "/runtimes": "runtimes", "/login": "login" } as const;

/** The route of a path. A session's id is one segment: the slash of a shared session's name is escaped. */
export function parseRoute(path: string): Route {
  const clean = path.length > 1 ? path.replace(/\/+$/, "") : path;
  const page = (pages as Record<string, (typeof pages)[keyof typeof pages]>)[clean || "/"];
  if (page) return { page };
  const match = /^\/sessions\/([^/]+)(\/timeline)?$/.exec(clean);
  if (!match?.[1]) return { page: "missing", path };
  try {
    return { page: match[2] ? "timeline" : "session", id: decodeURIComponent(match[1]) };
  } catch {
    return { page: "missing", path };
  }
}

/** The path of a route. */
export function pathOf(route: Route): string {
  switch (route.page) {
    case "fleet":
      return "/";
    case "session":
      return `/sessions/${encodeURIComponent(route.id)}`;
    case "timeline":
      return `/sessions/${encodeURIComponent(route.id)}/timeline`;
    case "missing":
      return route.path;
    default:
      return `/${route.page}`;
  }
}

export const sessionPath = (id: string): string => pathOf({ page: "session", id });
export const timelinePath = (id: string): string => pathOf({ page: "timeline", id });

import createPurifier, { type Config, type DOMPurify } from "dompurify";
import { Marked, type Tokens } from "marked";
import { visible } from "./text.js";

/** Markdown above this size is shown as plain text: parsing and layout would block the page. */
export const maxMarkdownChars = 200_000;

/** Elements and attributes that markdown needs. Styles, forms, media and scripts are not among them. */
const config: Config = {
  ALLOWED_TAGS: [
    ...["a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "input", "li", "ol"],
    ...["p", "pre", "s", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"],
  ],
  ALLOWED_ATTR: ["href", "title", "start", "type", "checked", "disabled", "class"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

const marked = new Marked({
  gfm: true,
  breaks: false,
  renderer: {
    // HTML in markdown is text. Images would load from other servers: their text is shown, with the address.
    html: ({ text }: Tokens.HTML | Tokens.Tag) => escape(text),
    image: ({ href, text }: Tokens.Image) => `<code>${escape(`image: ${text || href}`)}</code>`,
  },
});

let purifier: DOMPurify | undefined;

/** The purifier, made at the first use: it needs the page. */
function purify(): DOMPurify {
  if (purifier) return purifier;
  purifier = createPurifier(window);
  purifier.addHook("afterSanitizeAttributes", (node) => {
    if (node.tagName === "A") {
      node.setAttribute("target", "_blank");
      node.setAttribute("rel", "noopener noreferrer");
    }
    if (node.tagName === "INPUT") {
      if (node.getAttribute("type") !== "checkbox") node.remove();
      node.setAttribute("disabled", "");
    }
  });
  return purifier;
}

/** The elements of a markdown text, harmless: no code, no styles, no requests. */
export function renderMarkdown(text: string): DocumentFragment {
  const html = marked.parse(visible(text), { async: false });
  return purify().sanitize(html, config) as unknown as DocumentFragment;
}

import { Store } from "./store.js";

/** "system" follows the setting of the machine. */
export type Theme = "system" | "light" | "dark";

const key = "theme";

/** The theme that the user chose in this browser. */
export const theme = new Store<Theme>("system");

export function loadTheme(): void {
  const saved = localStorage.getItem(key);
  theme.set(saved === "light" || saved === "dark" ? saved : "system");
  theme.subscribe((value) => {
    if (value === "system") {
      localStorage.removeItem(key);
      delete document.documentElement.dataset["theme"];
    } else {
      localStorage.setItem(key, value);
      document.documentElement.dataset["theme"] = value;
    }
  });
}

export function nextTheme(value: Theme): Theme {
  return value === "system" ? "light" : value === "light" ? "dark" : "system";
}

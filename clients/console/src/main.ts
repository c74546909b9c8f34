import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/prose.css";
import { mount } from "svelte";
import App from "./App.svelte";
import { app } from "./lib/app.js";
import { followNetwork } from "./lib/connection.js";
import { loadTheme } from "./lib/theme.js";
import { follow } from "./lib/navigation.js";

loadTheme();
follow();
followNetwork(app.connection);
void app.start();
const target = document.getElementById("app");
if (target) mount(App, { target });

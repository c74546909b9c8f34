import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// `npm run dev` proxies calls to a server: copilot-grpc serve --web.
const server = process.env["COPILOT_GRPC_WEB"] ?? "http://127.0.0.1:7780";
const token = process.env["COPILOT_GRPC_TOKEN"];
const proxy = {
  target: server,
  changeOrigin: true,
  headers: { origin: server, ...(token ? { authorization: `Bearer ${token}` } : {}) },
};

export default defineConfig({
  plugins: [svelte()],
  resolve: {
    // The library and the console have the same versions: one copy of each.
    dedupe: ["@bufbuild/protobuf", "@connectrpc/connect", "@connectrpc/connect-web"],
  },
  build: {
    outDir: "../../server/console/dist",
    emptyOutDir: true,
    target: "es2023",
    // The content security policy forbids inline code and data: URLs of scripts.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 1500,
  },
  server: { port: 5180, proxy: { "/auth": proxy, "^/copilot\\..*": proxy } },
});

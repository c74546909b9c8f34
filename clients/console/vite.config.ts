import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, type Plugin } from "vite";

// `npm run dev` proxies calls to a server: copilot-grpc serve --web.
const server = process.env["COPILOT_GRPC_WEB"] ?? "http://127.0.0.1:7780";
const token = process.env["COPILOT_GRPC_TOKEN"];
const proxy = {
  target: server,
  changeOrigin: true,
  headers: { origin: server, ...(token ? { authorization: `Bearer ${token}` } : {}) },
};

/**
 * @bufbuild/protobuf 2.13.0 makes a map of all fields for each message that it decodes, for a session's event one of
 * about 150: half of the time in which a long session opens. This change makes one map for each type.
 */
function fieldMapForEachType(): Plugin {
  const from = "this._fieldsByNumber = new Map(this.desc.fields.map((f) => [f.number, f]));";
  const to = `this._fieldsByNumber = fieldsByNumber.get(this.desc);
        if (!this._fieldsByNumber) {
            this._fieldsByNumber = new Map(this.desc.fields.map((f) => [f.number, f]));
            fieldsByNumber.set(this.desc, this._fieldsByNumber);
        }`;
  return {
    name: "field-map-for-each-type",
    apply: "build",
    transform(code, id) {
      if (!/@bufbuild\/protobuf\/dist\/esm\/reflect\/reflect\.js$/.test(id)) return undefined;
      if (!code.includes(from)) this.error(`${id} is another version: check whether the change is still needed`);
      return { code: `const fieldsByNumber = new WeakMap();\n${code.replace(from, to)}`, map: null };
    },
  };
}

export default defineConfig({
  plugins: [svelte(), fieldMapForEachType()],
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
  server: { port: 5180, proxy: { "/auth": proxy, "^/(copilot|grpc)\\..*": proxy } },
});

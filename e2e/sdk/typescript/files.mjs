// A session's file system in memory.
export class MemoryFiles {
  broken = false;
  /** calls are the names of the operations that were used. */
  calls = new Set();
  #files = new Map();
  #folders = new Set(["/"]);

  names() {
    return [...this.#files.keys()].sort();
  }

  #use(name) {
    this.calls.add(name);
    if (this.broken) throw new Error("the disk is gone");
  }

  #file(path) {
    const content = this.#files.get(path);
    if (content === undefined) throw Object.assign(new Error(`no such file: ${path}`), { code: "ENOENT" });
    return content;
  }

  #makeParents(path) {
    const parts = path.split("/").slice(1, -1);
    parts.forEach((_, i) => this.#folders.add(`/${parts.slice(0, i + 1).join("/")}`));
  }

  async readFile(path) {
    this.#use("readFile");
    return this.#file(path);
  }

  async writeFile(path, content) {
    this.#use("writeFile");
    this.#makeParents(path);
    this.#files.set(path, content);
  }

  async appendFile(path, content) {
    this.#use("appendFile");
    this.#makeParents(path);
    this.#files.set(path, (this.#files.get(path) ?? "") + content);
  }

  async exists(path) {
    this.#use("exists");
    return this.#files.has(path) || this.#folders.has(path);
  }

  async stat(path) {
    this.#use("stat");
    const folder = this.#folders.has(path);
    const size = folder ? 0 : Buffer.byteLength(this.#file(path));
    const time = "2026-01-01T00:00:00.000Z";
    return { isFile: !folder, isDirectory: folder, size, mtime: time, birthtime: time };
  }

  async mkdir(path) {
    this.#use("mkdir");
    this.#makeParents(`${path}/x`);
  }

  #children(path) {
    const prefix = path.endsWith("/") ? path : `${path}/`;
    const children = new Map();
    for (const [all, type] of [[this.#folders, "directory"], [this.#files.keys(), "file"]]) {
      for (const one of all) {
        if (!one.startsWith(prefix) || one === prefix) continue;
        const [name, ...deeper] = one.slice(prefix.length).split("/");
        if (name) children.set(name, deeper.length ? "directory" : type);
      }
    }
    if (!children.size && !this.#folders.has(path)) this.#file(path);
    return [...children].map(([name, type]) => ({ name, type }));
  }

  async readdir(path) {
    this.#use("readdir");
    return this.#children(path).map(({ name }) => name);
  }

  async readdirWithTypes(path) {
    this.#use("readdirWithTypes");
    return this.#children(path);
  }

  async rm(path) {
    this.#use("rm");
    for (const one of this.names()) if (one === path || one.startsWith(`${path}/`)) this.#files.delete(one);
    for (const one of [...this.#folders]) if (one === path || one.startsWith(`${path}/`)) this.#folders.delete(one);
  }

  async rename(from, to) {
    this.#use("rename");
    this.#files.set(to, this.#file(from));
    this.#files.delete(from);
    this.#makeParents(to);
  }
}

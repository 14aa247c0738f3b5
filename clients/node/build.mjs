// Copies the Lua scripts into the package: npm packs no links, and one copy in the tree is enough.
import { cpSync, mkdirSync } from 'node:fs';

const scripts = ['redisson_acquire', 'redisson_release', 'redisson_abandon', 'renew'];
const from = new URL('../../lua/lock/', import.meta.url);
const to = new URL('dist/lua/', import.meta.url);
mkdirSync(to, { recursive: true });
for (const script of scripts) {
  cpSync(new URL(`${script}.lua`, from), new URL(`${script}.lua`, to));
}

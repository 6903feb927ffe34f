// The readable build of lit-html says on the console that it is one; imported before it, this stops that.
Object.assign(globalThis, { litIssuedWarnings: new Set(["dev-mode"]) });

/**
 * A role host in TypeScript: the contract of docs/reference/role-host.md on the public MCP SDK.
 *
 * `node host.ts` serves the process that started it, over stdio. `node host.ts --http 8100` serves
 * http://127.0.0.1:8100/mcp to callers with the bearer token in ROLE_HOST_TOKEN.
 */

import { createHash, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { parseArgs } from "node:util";
import { toNodeHandler } from "@modelcontextprotocol/node";
import {
  createMcpHandler,
  hostHeaderValidationResponse,
  localhostAllowedHostnames,
  localhostAllowedOrigins,
  OAuthError,
  OAuthErrorCode,
  originValidationResponse,
  ProtocolError,
  ProtocolErrorCode,
  requireBearerAuth,
  Server,
} from "@modelcontextprotocol/server";
import type { AuthInfo, CallToolResult, OAuthTokenVerifier, Tool } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import * as z from "zod";

// --- the wire ------------------------------------------------------------------------------------

const CONTRACT = 1;
const MOST_BYTES = 32 * 1024; // of content; a host may take more
const PRINTABLE = /^[\p{L}\p{M}\p{N}\p{P}\p{S} ]+$/u;

// Half of a surrogate pair is not a valid text. Lengths count characters, which zod's own `max` does not.
const isText = (value: string) => value.isWellFormed() && /[^\s\x1c-\x1f\x85]/.test(value);
const isLabel = (value: string) => isText(value) && PRINTABLE.test(value) && [...value].length <= 200;
const text = (fits: (value: string) => boolean, description: string, more = {}) =>
  z.string().refine(fits).meta({ description, minLength: 1, ...more });

const tier = z.enum(["workspace", "account", "channel"]); // without "channel", the host keeps no such roles
const label = text(isLabel, "printable characters, not only blanks", { maxLength: 200 });
const scope_id = label;
const name = label;
const content = text(isText, "the text of the role, not blank, 32 KiB of UTF-8 by default");
const contract = z.literal(CONTRACT).meta({ type: "integer" });

const ofList = z.strictObject({ scope_ids: z.partialRecord(tier, scope_id) });
const ofScope = z.strictObject({ tier, scope_id });
const ofPut = ofScope.extend({ name, content });
const record = z.strictObject({ name, content, tier });
const listed = z.strictObject({ contract, roles: z.array(record) });
const one = z.strictObject({ contract, role: record });
const code = z.enum(["invalid", "too_long", "not_found", "forbidden", "unavailable"]);
const failed = z.strictObject({ contract, code });

/** What `tools/list` says of a tool. Clients validate errors against the output schema, too. */
function tool(name: string, description: string, takes: z.ZodType, gives: z.ZodType, readOnlyHint: boolean): Tool {
  return {
    name,
    description,
    inputSchema: z.toJSONSchema(takes) as Tool["inputSchema"],
    outputSchema: { type: "object", ...z.toJSONSchema(z.union([gives, failed])) } as NonNullable<Tool["outputSchema"]>,
    annotations: { readOnlyHint, destructiveHint: !readOnlyHint, idempotentHint: true, openWorldHint: false },
  };
}

const tools = [
  tool("role_list", "All roles that are set for these scopes, at most one for each tier.", ofList, listed, true),
  tool("role_get", "The role of one tier and scope.", ofScope, one, true),
  tool("role_put", "Set or replace the role of one tier and scope.", ofPut, one, false),
  tool("role_delete", "Clear the role of one tier and scope, and give what it was.", ofScope, one, false),
];

type Tier = z.infer<typeof tier>;
type Role = z.infer<typeof record>;
type Code = z.infer<typeof code>;

/** A call that is answered with a code. The message is for people and repeats nothing that was sent. */
class Refused extends Error {
  readonly code: Code;
  constructor(code: Code, message: string) {
    super(message);
    this.code = code;
  }
}

function checked<A extends z.ZodType>(schema: A, given: unknown): z.infer<A> {
  const parsed = schema.safeParse(given);
  if (!parsed.success) throw new Refused("invalid", "the arguments do not fit the schema of the tool");
  return parsed.data;
}

// --- the roles -----------------------------------------------------------------------------------

/** Your database goes here, with tier and scope as the key; the functions below may then be asynchronous. */
const roles = new Map<string, Role>();
const key = (tier: Tier, scopeId: string) => `${tier}/${scopeId}`;

/** Whether this caller may use the scope. Your rules go here; who calls over stdio has started us. */
function permit(caller: AuthInfo | undefined, tier: Tier, scopeId: string): void {
  const scopes = caller?.scopes ?? ["*"];
  if (scopes.includes("*") || scopes.includes(key(tier, scopeId))) return;
  throw new Refused("forbidden", `the token does not reach this ${tier} scope`);
}

function list(given: unknown, caller: AuthInfo | undefined): { roles: Role[] } {
  const asked = Object.entries(checked(ofList, given).scope_ids) as [Tier, string][];
  for (const [tier, scopeId] of asked) permit(caller, tier, scopeId);
  return { roles: asked.flatMap(([tier, scopeId]) => roles.get(key(tier, scopeId)) ?? []) };
}

function put(given: unknown, caller: AuthInfo | undefined): { role: Role } {
  const { scope_id, ...role } = checked(ofPut, given);
  permit(caller, role.tier, scope_id);
  if (Buffer.byteLength(role.content) > MOST_BYTES) throw new Refused("too_long", "the content is over 32 KiB");
  roles.set(key(role.tier, scope_id), role);
  return { role };
}

function get(given: unknown, caller: AuthInfo | undefined, andDelete = false): { role: Role } {
  const { tier, scope_id } = checked(ofScope, given);
  permit(caller, tier, scope_id);
  const role = roles.get(key(tier, scope_id));
  if (role === undefined) throw new Refused("not_found", `no ${tier} role is set for this scope`);
  if (andDelete) roles.delete(key(tier, scope_id));
  return { role };
}

// --- the MCP server ------------------------------------------------------------------------------

const calls = new Map<string, (given: unknown, caller: AuthInfo | undefined) => object | Promise<object>>([
  ["role_list", list],
  ["role_get", get],
  ["role_put", put],
  ["role_delete", (given, caller) => get(given, caller, true)],
]);

/** The text for people says no role: clients log such texts. */
function answer(text: string, structured: object, isError: boolean): CallToolResult {
  return { content: [{ type: "text", text }], structuredContent: { contract: CONTRACT, ...structured }, isError };
}

/** The SDK's low-level server: its high-level one answers arguments that do not fit with a text of its own. */
function roleHost(): Server {
  const server = new Server({ name: "role-host-typescript", version: "1.0.0" }, { capabilities: { tools: {} } });
  server.setRequestHandler("tools/list", () => ({ tools }));
  server.setRequestHandler("tools/call", async ({ params }, { http }) => {
    const call = calls.get(params.name);
    if (call === undefined) throw new ProtocolError(ProtocolErrorCode.InvalidParams, "unknown tool");
    try {
      return answer("done", await call(params.arguments ?? {}, http?.authInfo), false);
    } catch (error) {
      const refused = error instanceof Refused ? error : new Refused("unavailable", "the roles cannot be reached now");
      return answer(`${refused.code}: ${refused.message}`, { code: refused.code }, true);
    }
  });
  return server;
}

// --- how it is reached ---------------------------------------------------------------------------

/** Says who has a bearer token. Here is one token, compared by digest, so that its length does not show. */
function verifier(token: string, scopes: string[]): OAuthTokenVerifier {
  const digest = (text: string) => createHash("sha256").update(text).digest();
  const verifyAccessToken = async (given: string): Promise<AuthInfo> => {
    if (!timingSafeEqual(digest(given), digest(token))) throw new OAuthError(OAuthErrorCode.InvalidToken, "unknown");
    return { token: given, clientId: "agent", scopes, expiresAt: Infinity };
  };
  return { verifyAccessToken };
}

function serveHttp(port: number, token: string, scopes: string[]): void {
  const mcp = createMcpHandler(roleHost);
  const identify = requireBearerAuth({ verifier: verifier(token, scopes) });
  const fetch = async (request: Request): Promise<Response> => {
    const foreign = // a web page that sends to another host name
      hostHeaderValidationResponse(request, localhostAllowedHostnames()) ??
      originValidationResponse(request, localhostAllowedOrigins());
    if (foreign !== undefined) return foreign;
    const caller = await identify(request);
    if (caller instanceof Response) return caller;
    if (new URL(request.url).pathname !== "/mcp") return new Response(null, { status: 404 });
    return mcp.fetch(request, { authInfo: caller });
  };
  const server = createServer(toNodeHandler({ fetch }));
  server.listen(port, "127.0.0.1", () => {
    console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`);
  });
}

const { http } = parseArgs({ options: { http: { type: "string" } } }).values;
if (http === undefined) {
  serveStdio(roleHost);
} else {
  const { ROLE_HOST_TOKEN: token, ROLE_HOST_SCOPES: scopes = "*" } = process.env;
  if (!token) throw new Error("ROLE_HOST_TOKEN is not set; set it to the token that callers have");
  serveHttp(Number(http), token, scopes.split(" "));
}

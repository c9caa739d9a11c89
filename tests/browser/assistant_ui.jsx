// A chat with assistant-ui's components over AG-UI: what docs/guides/ag-ui.md shows, and a menu of roles.

import { useMemo } from "react";
import { createRoot } from "react-dom/client";
import { HttpAgent } from "@ag-ui/client";
import {
  AssistantRuntimeProvider, ComposerPrimitive, MessagePrimitive, ThreadPrimitive, useAui,
} from "@assistant-ui/react";
import { useAgUiRuntime } from "@assistant-ui/react-ag-ui";

function Call({ toolName, args, result, approval, respondToApproval }) {
  const waits = approval && approval.approved === undefined && !approval.resolution;
  return (
    <section aria-label={toolName}>
      {toolName}({JSON.stringify(args)}) {result}
      {waits && <button onClick={() => respondToApproval({ approved: true })}>Approve</button>}
      {waits && <button onClick={() => respondToApproval({ approved: false, reason: "too dear" })}>Reject</button>}
    </section>
  );
}

const Message = () => (
  <MessagePrimitive.Root>
    <MessagePrimitive.Parts components={{ tools: { Fallback: Call } }} />
    <MessagePrimitive.Error />
  </MessagePrimitive.Root>
);

function Role() {
  const aui = useAui();
  const choose = (event) =>
    aui.composer.setRunConfig({ custom: event.target.value ? { role: { content: event.target.value } } : {} });
  return (
    <select aria-label="Role" onChange={choose}>
      <option value="">none</option>
      <option value="You are a pirate.">pirate</option>
    </select>
  );
}

function App() {
  const agent = useMemo(() => new HttpAgent({ url: "/agent/ag-ui", threadId: "main" }), []);
  return (
    <AssistantRuntimeProvider runtime={useAgUiRuntime({ agent })}>
      <ThreadPrimitive.Root>
        <main role="log" aria-label="Chat">
          <ThreadPrimitive.Messages components={{ Message }} />
        </main>
        <Role />
        <ComposerPrimitive.Root>
          <ComposerPrimitive.Input aria-label="Message" />
          <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
        </ComposerPrimitive.Root>
      </ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  );
}

createRoot(document.getElementById("app")).render(<App />);

"""The graph of a turn, for LangGraph Studio: `langgraph dev` in this folder. `python turn.py` prints it for Mermaid."""

from worldagent.graphs import turn_graph

graph = turn_graph()

if __name__ == "__main__":
    print(graph.get_graph().draw_mermaid())

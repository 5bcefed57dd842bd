// Before anything is drawn: dark or light as chosen, or as the system has it.
const chosen = localStorage.getItem("orchestrion-theme");
if (chosen) document.documentElement.dataset.theme = chosen;
